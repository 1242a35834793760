"""What a queue object asks for that is not honoured: a notice to its owner, never a refusal. Pure.

Queue objects of a cluster that used Kueue are accepted as they are; a wish that does not come true, or a field that
nobody knows, must not pass in silence.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

# Kueue's fields in v1beta1 and v1beta2 together; True: honoured.
_QUOTA: Final = {"name": True, "nominalQuota": True, "borrowingLimit": False, "lendingLimit": False}
_FLAVOR: Final = {"name": True, "resources": _QUOTA}
_GROUP: Final = {"coveredResources": True, "flavors": _FLAVOR}
FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ClusterQueue": {
        "resourceGroups": _GROUP,
        "queueingStrategy": True,
        "namespaceSelector": True,
        "stopPolicy": True,
        "cohort": False,
        "cohortName": False,
        "flavorFungibility": False,
        "preemption": False,
        "admissionChecks": False,
        "admissionChecksStrategy": False,
        "fairSharing": False,
        "admissionScope": False,
        "concurrentAdmissionPolicy": False,
    },
    "LocalQueue": {"clusterQueue": True, "stopPolicy": True, "fairSharing": False},
    "ResourceFlavor": {"nodeLabels": True, "nodeTaints": True, "tolerations": True, "topologyName": False},
}


def notice(kind: str, spec: Mapping[str, Any]) -> str:
    """One sentence about the spec of a queue object of that kind; empty when every field is honoured."""
    found = sorted(set(_fields(FIELDS[kind], spec, "spec")))
    unknown = [path for path, known in found if not known]
    ignored = [path for path, known in found if known]
    parts = [
        f"{what}: {', '.join(paths)}" for what, paths in (("not honoured", ignored), ("unknown", unknown)) if paths
    ]
    return f"accepted; {'; '.join(parts)}" if parts else ""


def _fields(known: Mapping[str, Any], value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Paths that are ignored, each with whether Kueue knows them. Lists are looked through without their indexes."""
    if isinstance(value, list):
        for item in value:
            yield from _fields(known, item, path)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            meaning = known.get(name)
            if isinstance(meaning, Mapping):
                yield from _fields(meaning, inner, f"{path}.{name}")
            elif not meaning and inner not in (None, "", {}, []):
                yield f"{path}.{name}", meaning is False
