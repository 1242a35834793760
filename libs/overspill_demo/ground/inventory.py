"""What the demo puts into a cluster, and the marks by which it finds it again: also what a killed demo left there.

Data only; who makes and who removes it is not known here. The policies are those of `deploy/`; a test keeps the copies
equal, since a package cannot reach out of its own tree. The kinds of Kueue are those that an installation defines.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from overspill_demo import objects
from overspill_events import names
from overspill_kube.resources import (
    CLUSTER_QUEUES,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    Resource,
)
from overspill_lab.kubelets.machines import MADE_BY as NODES_MADE_BY
from overspill_objects.meta import ObjectMeta
from overspill_objects.view import View

MARK: Final = f"{objects.MADE_BY_LABEL}={objects.MADE_BY}"
NODES_MARK: Final = f"{objects.MADE_BY_LABEL}={NODES_MADE_BY}"
STORY_NAMESPACES: Final = (objects.RESEARCH_NAMESPACE, objects.INFERENCE_NAMESPACE)
ALL_NAMESPACES: Final = (*STORY_NAMESPACES, names.SYSTEM_NAMESPACE)


class Named(View, frozen=True, kw_only=True):
    """All that we read of kinds that nobody else here reads."""

    metadata: ObjectMeta = ObjectMeta()


def _cluster_wide(group: str, plural: str, kind: str) -> Resource[Named]:
    return Resource(group=group, version="v1", plural=plural, kind=kind, namespaced=False, view=Named)


POLICIES: Final = _cluster_wide("admissionregistration.k8s.io", "mutatingadmissionpolicies", "MutatingAdmissionPolicy")
BINDINGS: Final = _cluster_wide(
    "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"
)

# In the order of removal: what admits first, then what the story made, then the kinds themselves.
MARKED: Final[tuple[tuple[Resource[Any], str], ...]] = (
    (BINDINGS, MARK),
    (POLICIES, MARK),
    (NAMESPACES, MARK),
    (NODES, NODES_MARK),
    (CLUSTER_QUEUES, MARK),
    (RESOURCE_FLAVORS, MARK),
    (PRIORITY_CLASSES, MARK),
    (CUSTOM_RESOURCE_DEFINITIONS, MARK),
)


def policies() -> list[tuple[Resource[Named], dict[str, Any]]]:
    """The admission policies and their bindings."""
    kinds = {resource.kind: resource for resource in (POLICIES, BINDINGS)}
    documents = yaml.safe_load_all((Path(__file__).parent / "policies.yaml").read_text())
    return [(kinds[document["kind"]], document) for document in documents]


def is_ours(metadata: ObjectMeta) -> bool:
    """Whether a demo made it."""
    return metadata.labels.get(objects.MADE_BY_LABEL) in {objects.MADE_BY, NODES_MADE_BY}


def marked(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the mark of the demo on it."""
    metadata = document["metadata"]
    labels = {**metadata.get("labels", {}), objects.MADE_BY_LABEL: objects.MADE_BY}
    return {**document, "metadata": {**metadata, "labels": labels}}
