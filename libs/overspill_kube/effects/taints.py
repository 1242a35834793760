"""Taints of a node. The list is one value to the API server: merge, strategic and server-side apply all replace it
whole.

So the patch tests the old list, and a list that somebody else has changed meanwhile is read again: two writers both
keep their taints.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from overspill_kube.client import Client
from overspill_kube.effects.fence import Contended, Document, JsonPatch, patch_tested, replace_list
from overspill_kube.outcomes import Done, Refusal
from overspill_kube.resources import NODES
from overspill_objects.core import Node, Taint

RULES: Final = (NODES.rule("get", "patch"),)


class TaintsSet(Struct, frozen=True):
    """The node has the taints that were asked for; `changed` is False when it had them already."""

    node: Node
    changed: bool


async def set_taints(
    client: Client,
    node_name: str,
    *,
    add: Iterable[Taint] = (),
    remove: Iterable[Taint] = (),
    expect_uid: str,
) -> TaintsSet | Contended | Refusal:
    """Add and remove taints of the node with that UID; a taint is known by key and effect, all others stay as they are.

    An added taint that is there with another value gets ours. Raises KubeUnavailable: whether it took effect is
    unknown.
    """
    wanted = {(taint.key, taint.effect): taint for taint in add}
    unwanted = {(taint.key, taint.effect) for taint in remove}
    if both := wanted.keys() & unwanted:
        raise ValueError(f"taints both added and removed: {sorted(both)}")
    changed = False

    def build(document: Document) -> JsonPatch | None:
        nonlocal changed
        old = document.get("spec", {}).get("taints") or []
        new = _merged(old, wanted, unwanted)
        changed = new != old
        return replace_list(document, "spec", "taints", new) if changed else None

    outcome = await patch_tested(client, NODES, name=node_name, uid=expect_uid, build=build)
    return TaintsSet(outcome.object, changed) if isinstance(outcome, Done) else outcome


def _merged(
    old: list[dict[str, Any]], wanted: dict[tuple[str, str], Taint], unwanted: set[tuple[str, str]]
) -> list[dict[str, Any]]:
    missing = dict(wanted)
    result: list[dict[str, Any]] = []
    for entry in old:
        key = (entry["key"], entry.get("effect", ""))
        if key in unwanted:
            continue
        ours = missing.pop(key, None)
        same = ours is None or entry.get("value", "") == ours.value
        result.append(entry if same or ours is None else {**entry, "value": ours.value})
    return result + [_document(taint) for taint in missing.values()]


def _document(taint: Taint) -> dict[str, Any]:
    return {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
