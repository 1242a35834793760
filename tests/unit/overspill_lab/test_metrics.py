"""The lab's series and the queries it answers."""

from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from overspill_events.names import VIRTUAL_LABEL
from overspill_lab.metrics.exposition import exposition
from overspill_lab.metrics.measure import Measured, lowest_priority, measure
from overspill_lab.metrics.query import FREE_GPUS, FREE_GPUS_BESIDES_LOWEST, answer
from overspill_objects.core import Pod
from overspill_objects.scheduling import PriorityClass
from tests.support.lab_cases import GPU, node, pod, running

SPILLED = {"nodeName": "virtual"}


def priority(name: str, value: int) -> PriorityClass:
    return msgspec.convert({"metadata": {"name": name}, "value": value}, type=PriorityClass)


CLASSES = [priority("low", -10), priority("high", 10), priority("system", 2_000_000_000)]


def holder(name: str, gpus: int, **more: Any) -> Pod:
    return running(name, requests={GPU: str(gpus)}, **more)


def counted(*pods: Pod) -> Measured:
    virtual = node("virtual", gpus=1000, labels={VIRTUAL_LABEL: "true"})
    return measure([node("n", gpus=8), node("m", gpus=4), virtual], pods, CLASSES)


EVERYBODY = (
    holder("low", 2, spec={"priority": -10}),
    holder("high", 3, spec={"priority": 10}),
    holder("leaving", 1, metadata={"deletionTimestamp": "2026-11-30T12:00:00Z"}),
    holder("ended", 1, status={"phase": "Succeeded"}),
    holder("spilled", 7, spec=SPILLED),
    pod("waiting", requests={GPU: "5"}),
)


def value(query: str, measured: Measured) -> str:
    said = answer(query, None, measured, now=100.0)
    assert said.status == 200
    assert said.body["status"] == "success"
    assert said.body["data"]["resultType"] == "vector"
    ((sample),) = said.body["data"]["result"]
    assert sample["metric"] == {}
    assert sample["value"][0] == 100.0
    return str(sample["value"][1])


def test_free_is_what_nobody_at_home_holds() -> None:
    assert value(FREE_GPUS, counted(*EVERYBODY)) == "6"
    assert value(FREE_GPUS, counted()) == "12"


def test_the_lowest_class_may_be_left_out() -> None:
    assert value(FREE_GPUS_BESIDES_LOWEST, counted(*EVERYBODY)) == "8"


def test_spaces_do_not_matter() -> None:
    assert value(f"  {FREE_GPUS.replace(' - ', '   - ')}\n", counted()) == "12"


def test_which_class_is_lowest() -> None:
    assert lowest_priority(CLASSES) == -10
    assert lowest_priority([CLASSES[0], CLASSES[2]]) is None  # alone it is lower than nothing
    assert lowest_priority([]) is None


@pytest.mark.parametrize("query", [None, "", "up", "sum(overspill_lab_home_gpus_allocatable)"])
def test_other_queries_are_refused_with_the_list_of_known_ones(query: str | None) -> None:
    said = answer(query, None, counted(), now=100.0)
    assert (said.status, said.body["status"], said.body["errorType"]) == (400, "error", "bad_data")
    assert FREE_GPUS in said.body["error"]
    assert FREE_GPUS_BESIDES_LOWEST in said.body["error"]


@pytest.mark.parametrize(
    ("time", "status"), [("100", 200), ("130.5", 200), ("1", 400), ("yesterday", 400), ("nan", 400)]
)
def test_there_is_only_now(time: str, status: int) -> None:
    said = answer(FREE_GPUS, time, counted(), now=100.0)
    assert said.status == status
    if status == 400:
        assert '"time"' in said.body["error"]


@pytest.mark.parametrize("measured", [None, measure([], [], [])])
def test_an_unknown_cluster_has_no_number(measured: Measured | None) -> None:
    """Unknown is not zero: an empty result, as Prometheus gives without a scrape."""
    said = answer(FREE_GPUS, None, measured, now=100.0)
    assert said.status == 200
    assert said.body["data"]["result"] == []


def _series(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_the_exposition_is_readable_and_adds_up_to_the_answers() -> None:
    measured = counted(*EVERYBODY)
    series = _series(exposition(measured))
    allocatable = sum(amount for _, amount in series["overspill_lab_home_gpus_allocatable"])
    held = series["overspill_lab_home_gpus_requested"]
    assert str(int(allocatable - sum(amount for _, amount in held))) == value(FREE_GPUS, measured)
    others = sum(amount for labels, amount in held if labels["class"] != "lowest")
    assert str(int(allocatable - others)) == value(FREE_GPUS_BESIDES_LOWEST, measured)
    assert series["overspill_lab_gpus_free"] == [({}, 6.0)]


def test_the_series_look_like_the_well_known_ones() -> None:
    series = _series(exposition(counted(*EVERYBODY)))
    assert ({"node": "m", "resource": "nvidia_com_gpu", "unit": "integer"}, 4.0) in series[
        "kube_node_status_allocatable"
    ]
    requests = [labels for labels, _ in series["kube_pod_container_resource_requests"]]
    assert {labels["pod"] for labels in requests} == {"low", "high", "leaving", "spilled", "waiting"}
    busy = [labels["Hostname"] for labels, amount in series["DCGM_FI_DEV_GPU_UTIL"] if amount]
    assert busy == ["n"] * 6


def test_labels_are_escaped() -> None:
    strange = measure([node('n"\\\n', gpus=1)], [], [])
    assert _series(exposition(strange))["overspill_lab_home_gpus_allocatable"] == [({"node": 'n"\\\n'}, 1.0)]
