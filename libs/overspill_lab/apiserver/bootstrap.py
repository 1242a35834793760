"""What a cluster has before anybody asks for anything: namespaces and the system priority classes."""

from overspill_events.names import SYSTEM_NAMESPACE
from overspill_lab.apiserver.registry import Registry
from overspill_lab.apiserver.resources import NAMESPACES, PRIORITY_CLASSES

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE)
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def fill(registry: Registry) -> None:
    """Create the objects of a new cluster; the UID of `kube-system` is its identity."""
    for name in _NAMESPACES:
        registry.create(NAMESPACES, "", {"metadata": {"name": name}})
    for name, value in _SYSTEM_CLASSES.items():
        registry.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})
