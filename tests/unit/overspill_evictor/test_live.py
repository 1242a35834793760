"""The last look: what was decided from copies must still hold."""

from typing import Any

import msgspec
import pytest

from overspill_events.catalog import OwnerRef
from overspill_events.reasons import HoldReason
from overspill_evictor.live import Seen, objection, selector_text
from overspill_evictor.policy import Return
from overspill_objects.meta import LabelSelector, LabelSelectorRequirement
from tests.unit.overspill_evictor.cluster import home, pod, replica_set, virtual

AWAY = pod("away")
PLANNED = Return(
    pod=AWAY, owner=OwnerRef(kind="ReplicaSet", name="web", uid="rs-web"), home_node="home-1", home_free_gpus=4, gpus=1,
    floor=1, ready_replicas=3, age_seconds=1000, is_running=True,
)  # fmt: skip


def seen(**changes: Any) -> Seen:
    pods = (AWAY, pod("b", node="home-1"), pod("c", node="home-1"))
    as_planned = Seen(pods=pods, owner=replica_set(), virtual_node=virtual(), home_node=home())
    return msgspec.structs.replace(as_planned, **changes)


def reason(what: Seen, *, leaving: frozenset[str] = frozenset()) -> HoldReason | None:
    hold = objection(PLANNED, what, leaving=leaving, default_floor=1)
    return hold.reason if hold is not None else None


def test_nothing_changed_nothing_to_object() -> None:
    """The eviction may be sent."""
    assert reason(seen()) is None


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        (HoldReason.OWNER_UNKNOWN, {"owner": None}),
        (HoldReason.OWNER_UNKNOWN, {"owner": msgspec.structs.replace(replica_set(), metadata=replica_set("x").metadata)}),
        (HoldReason.UNKNOWN, {"pods": (pod("b", node="home-1"), pod("c", node="home-1"))}),
        (HoldReason.UNKNOWN, {"pods": (pod("away", leaving=True), pod("b"))}),
        (HoldReason.UNKNOWN, {"pods": (pod("away", node="home-1"), pod("b"))}),
        (HoldReason.GATE_OPEN, {"virtual_node": virtual(closed=False)}),
        (HoldReason.GATE_OPEN, {"virtual_node": None}),
        (HoldReason.NO_HOME_FIT, {"home_node": None}),
        (HoldReason.NO_HOME_FIT, {"home_node": home(unschedulable=True)}),
        (HoldReason.NO_HOME_FIT, {"home_node": home(taints=[{"key": "x", "effect": "NoExecute"}])}),
        (HoldReason.AT_FLOOR, {"pods": (AWAY, pod("b", ready=False), pod("c", leaving=True))}),
        (HoldReason.AT_FLOOR, {"owner": replica_set(annotations={"overspill.dev/floor": "3"})}),
        (HoldReason.BAD_ANNOTATION, {"owner": replica_set(annotations={"overspill.dev/floor": "all"})}),
    ],
)  # fmt: skip
def test_what_changed_meanwhile_stops_it(expected: HoldReason, changes: dict[str, Any]) -> None:
    """Each in its own words."""
    assert reason(seen(**changes)) is expected


def test_pods_that_leave_at_the_same_time_are_not_counted_on() -> None:
    """Two of three are being returned elsewhere: the last one stays."""
    assert reason(seen(), leaving=frozenset({"p-b"})) is None
    assert reason(seen(), leaving=frozenset({"p-b", "p-c"})) is HoldReason.AT_FLOOR


def test_selectors_become_list_parameters() -> None:
    """Labels and every operator; none at all selects no list."""
    requirements = (
        LabelSelectorRequirement(key="tier", operator="In", values=("a", "b")),
        LabelSelectorRequirement(key="old", operator="NotIn", values=("x",)),
        LabelSelectorRequirement(key="has", operator="Exists"),
        LabelSelectorRequirement(key="not", operator="DoesNotExist"),
    )
    selector = LabelSelector(match_labels={"app": "web"}, match_expressions=requirements)
    assert selector_text(selector) == "app=web,tier in (a,b),old notin (x),has,!not"
    assert selector_text(None) == ""
    with pytest.raises(ValueError, match="operator 'Almost' is not defined"):
        selector_text(LabelSelector(match_expressions=(LabelSelectorRequirement(key="k", operator="Almost"),)))
