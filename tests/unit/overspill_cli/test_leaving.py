"""What has to go when Overspill leaves, and what has not."""

from datetime import UTC, datetime

import msgspec
import pytest

from overspill_bridge.nodeobject import NodeShape, node_body
from overspill_cli.leaving import Remains, is_held, providers_named, remains
from overspill_events.names import (
    ADMISSION_GATE,
    BASE_TAINT,
    PROVIDER_ANNOTATION,
    QUEUE_LABEL,
    SPILLABLE_LABEL,
    SWITCH_TAINT,
    VIRTUAL_LABEL,
)
from overspill_objects.apps import Deployment
from overspill_objects.batch import Job
from overspill_objects.core import Node, Pod

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def node(name, *, virtual=False, taints=()):
    labels = {VIRTUAL_LABEL: "true"} if virtual else {}
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": spec}, Node)


def pod(name, *, on="", spillable=False, gates=(), phase="Running", provider=None):
    labels = {SPILLABLE_LABEL: "true"} if spillable else {}
    spec = {"nodeName": on, "schedulingGates": [{"name": gate} for gate in gates]}
    annotations = {PROVIDER_ANNOTATION: provider} if provider else {}
    meta = {"name": name, "namespace": "n", "labels": labels, "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": phase}}, Pod)


def job(name="j", *, queue=True, condition=None, meta=None, **spec):
    labels = {QUEUE_LABEL: "q"} if queue else {}
    conditions = [{"type": condition, "status": "True"}] if condition else []
    body = {
        "metadata": {"name": name, "namespace": "n", "labels": labels, **(meta or {})},
        "spec": {"suspend": True} | spec,
        "status": {"conditions": conditions},
    }
    return msgspec.convert(body, Job)


def found(**things):
    nothing = {"nodes": (), "pods": (), "jobs": (), "services": (), "leases": (), "kueue_admits": False}
    return remains(**(nothing | things))


def names(objects):
    return [one.metadata.name for one in objects]


def test_pods_that_may_have_an_instance_have_spilled():
    pods = (
        pod("web", on="v", spillable=True),
        pod("done", on="v", spillable=True, phase="Succeeded"),
        pod("daemon", on="v"),
        pod("home", on="h", spillable=True),
        pod("pending", spillable=True),
        pod("gated", gates=(ADMISSION_GATE, "other")),
        pod("others", gates=("other",)),
    )
    left = found(nodes=(node("v", virtual=True), node("h", taints=("team",))), pods=pods)
    assert names(left.spilled) == ["web"]
    assert names(left.gated) == ["gated"]
    assert names(left.nodes) == ["v"]
    assert left.tainted == ()


def test_taints_of_ours_on_home_nodes_go_too():
    left = found(nodes=(node("h", taints=("team", BASE_TAINT)), node("v", virtual=True, taints=(SWITCH_TAINT,))))
    assert names(left.tainted) == ["h"]
    assert list(left.lines()) == [
        "close the gate of v (it is closed)", "remove our taints from node h", "delete virtual node v",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "held"),
    [
        (job(), True),
        (job(queue=False), False),
        (job(suspend=False), False),
        (job(condition="Complete"), False),
        (job(condition="Failed"), False),
        (job(condition="Suspended"), True),
        (job(managedBy="other.io/controller"), False),
        (job(managedBy="kubernetes.io/job-controller"), True),
        (job(meta={"deletionTimestamp": "2030-01-01T12:00:00Z"}), False),
    ],
)
def test_jobs_that_wait_for_a_queue_of_ours_are_held(one, held):
    assert is_held(one) is held
    assert bool(found(jobs=(one,)).held) is held
    assert found(jobs=(one,), kueue_admits=True).held == ()


def test_only_services_that_run_are_to_be_stopped():
    deployments = [
        msgspec.convert({"metadata": {"name": name}, "spec": {"replicas": count}}, Deployment)
        for name, count in (("runs", 1), ("stopped", 0))
    ]
    assert names(found(services=deployments).services) == ["runs"]


def test_providers_are_named_by_virtual_nodes_and_by_pods_that_are_not_at_home():
    shape = NodeShape(name="v", resource="nvidia.com/gpu", gpus=1, cpus=1, memory_gib=1)
    virtual = msgspec.convert(node_body(shape, health={"a": None, "b": "down"}, now=NOW), Node)
    pods = (
        pod("ended", on="v", provider="c", phase="Succeeded"),
        pod("lost", on="a-node-that-is-gone", provider="d"),
        pod("copied", on="h", provider="e"),
        pod("pending", provider="f"),
        pod("own", on="v"),
    )
    assert providers_named((virtual, node("h")), pods) == {
        "a": "node v", "b": "node v", "c": "pod n/ended", "d": "pod n/lost",
    }  # fmt: skip


def test_an_empty_cluster_has_nothing_left():
    assert found().is_nothing
    assert Remains().is_nothing
    assert not found(nodes=(node("v", virtual=True),)).is_nothing
