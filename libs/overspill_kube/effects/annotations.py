"""Annotations of pods and nodes: single keys are set or removed, everybody else's stay."""

from collections.abc import Mapping
from typing import Any, Final

from overspill_kube.client import Client
from overspill_kube.effects.fence import Contended, Document, JsonPatch, Target, patch_tested
from overspill_kube.outcomes import Outcome
from overspill_kube.resources import NODES, PODS
from overspill_objects.core import Node, Pod

POD_RULES: Final = (PODS.rule("get", "patch"),)
NODE_RULES: Final = (NODES.rule("get", "patch"),)


async def annotate(client: Client, pod: Target, annotations: Mapping[str, str | None]) -> Outcome[Pod] | Contended:
    """Set annotations of exactly this pod, or remove those whose value is None. No write when nothing is to change."""

    def build(document: Document) -> JsonPatch | None:
        return _patch(document, annotations)

    return await patch_tested(client, PODS, name=pod.name, namespace=pod.namespace, uid=pod.uid, build=build)


async def annotate_node(
    client: Client,
    node_name: str,
    annotations: Mapping[str, str | None],
    *,
    expect_uid: str,
    only_if: Mapping[str, str] | None = None,
) -> Outcome[Node] | Contended:
    """As `annotate`, for the node with that UID. With `only_if` nothing is written unless those of the annotations that
    are there have exactly these values: an order that somebody has renewed meanwhile is not the one that was judged.
    """

    def build(document: Document) -> JsonPatch | None:
        now = document["metadata"].get("annotations") or {}
        if only_if is not None and {key: now[key] for key in annotations if key in now} != only_if:
            return None
        patch = _patch(document, annotations)
        if patch is None or only_if is None:
            return patch
        return [{"op": "test", "path": _path(key), "value": value} for key, value in only_if.items()] + patch

    return await patch_tested(client, NODES, name=node_name, uid=expect_uid, build=build)


def _patch(document: Document, annotations: Mapping[str, str | None]) -> JsonPatch | None:
    old = document["metadata"].get("annotations")
    now = old or {}
    change = {key: value for key, value in annotations.items() if now.get(key) != value}
    if not change:
        return None
    if old is None:
        new = {key: value for key, value in change.items() if value is not None}
        version = document["metadata"]["resourceVersion"]
        return [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/metadata/annotations", "value": new},
        ]
    return [_step(key, value) for key, value in change.items()]


def _step(key: str, value: str | None) -> dict[str, Any]:
    return {"op": "remove", "path": _path(key)} if value is None else {"op": "add", "path": _path(key), "value": value}


def _path(key: str) -> str:
    return "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")
