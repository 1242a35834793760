"""The fence that effects share: read the object live, make sure that it is the one that was meant, write under a test.

A JSON Patch whose `test` fails changes nothing; then the object is read again and the patch is built again, a bounded
number of times. This module must not know what is being changed.
"""

import random
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from overspill_kube.client import Client, PatchKind, decode_object
from overspill_kube.outcomes import Conflict, Done, Invalid, NotFound, Outcome, Replaced
from overspill_kube.resources import Resource

T = TypeVar("T")
Document: TypeAlias = dict[str, Any]
JsonPatch: TypeAlias = list[dict[str, Any]]

ATTEMPTS: Final = 8
_PAUSE_SECONDS: Final = 0.05
_RANDOM: Final = random.SystemRandom()


class Target(Protocol):
    """An object that was decided about: PodRef and WorkloadRef of the events are such."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class Contended(Struct, frozen=True):
    """Others wrote the same object so often that our change never fitted; nothing was changed."""

    attempts: int


async def patch_tested(
    client: Client,
    resource: Resource[T],
    *,
    name: str,
    uid: str,
    build: Callable[[Document], JsonPatch | None],
    namespace: str | None = None,
) -> Outcome[T] | Contended:
    """Patch the object with that UID by what `build` makes of its present state; None from `build`: nothing to do.

    `build` tests whatever it overwrites; the UID is tested here. An Invalid answer counts as lost race while the object
    keeps changing, and as Invalid once it was refused in an unchanged state.
    """
    refused_at: str | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            await client.clock.sleep(_RANDOM.uniform(0, _PAUSE_SECONDS * attempt))
        document = await client.get_document(resource, name, namespace)
        if document is None:
            return NotFound(f"{resource.kind} {name} is gone")
        meta = document["metadata"]
        if meta["uid"] != uid:
            return Replaced(f"{resource.kind} {name} is another object now: {meta['uid']} instead of {uid}")
        patch = build(document)
        if patch is None:
            return Done(_view(resource, document))
        fenced = [{"op": "test", "path": "/metadata/uid", "value": uid}, *patch]
        outcome = await client.patch(resource, name, fenced, kind=PatchKind.JSON, namespace=namespace)
        if isinstance(outcome, Invalid) and refused_at == meta["resourceVersion"]:
            return outcome
        if not isinstance(outcome, Conflict | Invalid):
            return outcome
        refused_at = meta["resourceVersion"]
    return Contended(ATTEMPTS)


def replace_list(document: Document, parent: str, field: str, new: list[Document]) -> JsonPatch:
    """Patch that replaces a whole list below `parent` (such as "spec") under a test of its old value.

    A list that is absent cannot be tested portably; the object's version is tested instead.
    """
    holder = document.get(parent)
    if holder is not None and holder.get(field) is not None:
        path = f"/{parent}/{field}"
        return [{"op": "test", "path": path, "value": holder[field]}, {"op": "replace", "path": path, "value": new}]
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": document["metadata"]["resourceVersion"]}
    if holder is None:
        return [version, {"op": "add", "path": f"/{parent}", "value": {field: new}}]
    return [version, {"op": "add", "path": f"/{parent}/{field}", "value": new}]


def _view(resource: Resource[T], document: Document) -> T:
    return decode_object(resource.view, msgspec.json.encode(document))
