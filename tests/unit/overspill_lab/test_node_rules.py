"""From a node's state to its taints, from its taints to the pods that must leave."""

from typing import Any

import msgspec
import pytest

from overspill_lab.controllers.node_rules import is_deaf, silent_conditions, stay_seconds, wanted_taints
from overspill_objects.core import Node, Taint
from tests.support.lab_cases import NOW, node, pod


def keys(described: Node) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in wanted_taints(described, deaf=False, now=NOW)}


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "expected"),
    [
        ({"Ready": "True"}, False, set()),
        ({"Ready": "False"}, False, {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}),
        ({"Ready": "Unknown"}, False, {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}),
        ({"Ready": "True", "DiskPressure": "True"}, False, {("disk-pressure", "NoSchedule")}),
        ({"Ready": "True"}, True, {("unschedulable", "NoSchedule")}),
    ],
)
def test_the_state_is_the_taints(
    conditions: dict[str, str], unschedulable: bool, expected: set[tuple[str, str]]
) -> None:
    described = node(conditions=conditions, spec={"unschedulable": unschedulable})
    assert keys(described) == {(f"node.kubernetes.io/{key}", effect) for key, effect in expected}


def test_foreign_taints_stay_and_old_ones_of_ours_go() -> None:
    foreign = {"key": "overspill.dev/external", "effect": "NoSchedule"}
    described = node(spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, foreign]})
    assert keys(described) == {("overspill.dev/external", "NoSchedule")}


def test_a_taint_that_is_there_keeps_its_time() -> None:
    there = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-30T11:00:00Z"}
    described = node(conditions={"Ready": "Unknown"}, spec={"taints": [there]})
    wanted = wanted_taints(described, deaf=False, now=NOW)
    assert described.spec.taints[0] in wanted
    assert wanted_taints(node(conditions={"Ready": "True"}), deaf=False, now=NOW) == ()


def test_where_no_node_is_ready_nobody_is_sent_away() -> None:
    lost, there = node(conditions={"Ready": "Unknown"}), node(conditions={"Ready": "True"})
    assert is_deaf([lost, node(conditions={"Ready": "False"}), node(conditions={"DiskPressure": "False"})])
    assert not is_deaf([lost, there])
    assert not is_deaf([])
    sent_away = node(conditions={"Ready": "Unknown"}, spec={"taints": [msgspec.to_builtins(UNREACHABLE)]})
    assert [(one.key, one.effect) for one in wanted_taints(sent_away, deaf=True, now=NOW)] == [
        ("node.kubernetes.io/unreachable", "NoSchedule")
    ]


UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
SOFT = Taint(key="k", effect="NoSchedule")


def _tolerating(**toleration: Any) -> dict[str, Any]:
    return {"operator": "Exists", "effect": "NoExecute", **toleration}


@pytest.mark.parametrize(
    ("tolerations", "taints", "seconds"),
    [
        ([], [SOFT], None),
        ([], [UNREACHABLE], 0),
        ([_tolerating()], [UNREACHABLE], None),
        ([_tolerating(tolerationSeconds=300)], [UNREACHABLE], 300),
        ([_tolerating(tolerationSeconds=-1)], [UNREACHABLE], 0),
        (
            [_tolerating(tolerationSeconds=300), _tolerating(key=UNREACHABLE.key, tolerationSeconds=20)],
            [UNREACHABLE],
            20,
        ),
        ([_tolerating(key=UNREACHABLE.key)], [UNREACHABLE, Taint(key="x", effect="NoExecute")], 0),
    ],
)
def test_how_long_a_pod_may_stay(tolerations: list[Any], taints: list[Taint], seconds: float | None) -> None:
    assert stay_seconds(pod(spec={"tolerations": tolerations}), taints) == seconds


def test_a_silent_node_is_unknown_in_every_way() -> None:
    said = silent_conditions(node(conditions={"Ready": "True"}), now=NOW)
    assert {one["type"]: (one["status"], one["reason"]) for one in said} == {
        "Ready": ("Unknown", "NodeStatusUnknown"),
        "MemoryPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "DiskPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
    }
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    assert silent_conditions(node(conditions=dict.fromkeys(kinds, "Unknown")), now=NOW) == []
