"""What becomes of an object whose owners go."""

from typing import Any

import msgspec
import pytest

from overspill_kube.resources import PODS
from overspill_lab.controllers.garbage_rules import (
    Clear,
    Delete,
    Disown,
    Graph,
    Item,
    Orphan,
    Release,
    Standing,
    judge,
    needs_work,
    standing_of,
)
from overspill_objects.meta import ObjectMeta
from tests.support.lab_cases import time


def item(uid: str, *owners: str, blocks: bool = True, **meta: Any) -> Item:
    references = [{"uid": owner, "name": owner, "kind": "K", "blockOwnerDeletion": blocks} for owner in owners]
    document = {"name": uid, "uid": uid, "ownerReferences": references, **meta}
    return Item(resource=PODS, meta=msgspec.convert(document, type=ObjectMeta))


def leaving(uid: str, finalizer: str) -> Item:
    return item(uid, deletionTimestamp=time(), finalizers=[finalizer])


SOLID, WAITING, ABSENT = Standing.SOLID, Standing.WAITING, Standing.ABSENT


@pytest.mark.parametrize(
    ("standings", "has_dependents", "verdict"),
    [
        ({"a": SOLID}, False, None),
        ({"a": ABSENT}, False, Delete(propagation="Background")),
        ({"a": ABSENT, "b": ABSENT}, True, Delete(propagation="Background")),
        ({"a": SOLID, "b": ABSENT}, False, Disown(owner_uids=frozenset("b"))),
        ({"a": SOLID, "b": WAITING}, False, Disown(owner_uids=frozenset("b"))),
        ({"a": WAITING}, False, Delete(propagation="Background")),
        ({"a": WAITING}, True, Delete(propagation="Foreground")),
    ],
)
def test_an_object_lives_as_long_as_one_owner(standings: Any, has_dependents: bool, verdict: Any) -> None:
    family = [item("child", "self")] if has_dependents else []
    assert judge(item("self", *standings), standings, family) == verdict


def test_nobody_owns_what_has_no_owner() -> None:
    assert judge(item("self"), {}, []) is None


def test_an_object_that_goes_already_is_left_alone() -> None:
    assert judge(item("self", "a", deletionTimestamp=time()), {}, []) is None


def test_foreground_deletion_clears_the_dependents_first() -> None:
    owner = leaving("owner", "foregroundDeletion")
    there, going = item("there", "owner"), item("going", "owner", deletionTimestamp=time())
    assert judge(owner, {}, [there, going]) == Clear(dependents=(there,))
    assert judge(owner, {}, [going]) is None  # waits
    assert judge(owner, {}, []) == Release(finalizer="foregroundDeletion")
    assert judge(owner, {}, [item("loose", "owner", blocks=False)]) == Release(finalizer="foregroundDeletion")


def test_orphaning_keeps_the_dependents() -> None:
    child = item("child", "owner")
    assert judge(leaving("owner", "orphan"), {}, [child]) == Orphan(dependents=(child,))


def test_how_owners_stand() -> None:
    assert standing_of(None) is ABSENT
    assert standing_of(item("a")) is SOLID
    assert standing_of(leaving("a", "foregroundDeletion")) is WAITING
    assert standing_of(leaving("a", "other")) is SOLID


def test_what_is_worth_a_look() -> None:
    assert needs_work(item("a", "owner").meta)
    assert needs_work(leaving("a", "orphan").meta)
    assert not needs_work(item("a").meta)
    assert not needs_work(item("a", finalizers=["orphan"]).meta)


def test_the_graph_follows_changes_of_owners() -> None:
    graph = Graph()
    graph.put(item("child", "a"))
    graph.put(item("child", "b"))
    assert graph.dependents_of("a") == []
    assert graph.dependents_of("b") == [item("child", "b")]
    graph.drop("child")
    graph.drop("never seen")
    assert graph.dependents_of("b") == []
    assert graph.get("child") is None
