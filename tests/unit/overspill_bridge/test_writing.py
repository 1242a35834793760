"""What is written to pods and nodes: honest, minimal, and nothing the second time."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_bridge import nodeobject, podstatus
from overspill_bridge.adoption import Mark, adoption_patch, release_patch
from overspill_events.names import BASE_TAINT, DELETION_COST_ANNOTATION, PROVIDER_ANNOTATION, SWITCH_TAINT
from overspill_events.reasons import SpillReason
from overspill_objects.core import Node, Pod
from overspill_objects.meta import condition_of
from overspill_providers.protocol import InstanceState
from tests.support.bridge_cases import NOW, instance, pod

S = InstanceState
RAN = {"phase": "Running", "startTime": "2030-01-01T11:00:00Z"}


def written(one: Pod, desired, now=NOW) -> Pod:
    """The pod after its status patch, merged as the API server does: conditions by type, the rest by field."""
    patch = podstatus.status_patch(one, desired, now=now)
    if patch is None:
        return one
    status = msgspec.to_builtins(one.status)
    conditions = {c["type"]: c for c in status.pop("conditions", [])}
    conditions |= {c["type"]: c for c in patch.get("conditions", [])}
    merged = {k: v for k, v in (status | patch).items() if v is not None} | {"conditions": list(conditions.values())}
    body = msgspec.to_builtins(one) | {"status": merged}
    return msgspec.convert(body, Pod)


def desires(one: Pod):
    return {
        "waiting": podstatus.waiting(one, SpillReason.NO_STOCK, "none left"),
        "starting": podstatus.starting(one, instance(S.STARTING)),
        "running": podstatus.running(one, provider="fake", instance=instance(), now=NOW),
        "exited": podstatus.concluded(one, provider="fake", instance=instance(S.EXITED, exit_code=0), now=NOW),
        "failed": podstatus.concluded(one, provider="fake", instance=instance(S.FAILED), now=NOW),
        "preempted": podstatus.concluded(one, provider="fake", instance=instance(S.PREEMPTED), now=NOW),
        "lost": podstatus.failed(one, reason="ProviderInstanceLost", message="gone", now=NOW),
    }


@pytest.mark.parametrize("name", ["waiting", "starting", "running", "exited", "failed", "preempted", "lost"])
def test_the_same_status_is_written_once(name):
    one = written(pod(), desires(pod())[name])
    later = NOW + timedelta(hours=1)
    assert podstatus.status_patch(one, desires(one)[name], now=later) is None


@given(st.lists(st.sampled_from(["waiting", "starting", "running"]), max_size=5), st.sampled_from(["exited", "lost"]))
def test_any_path_ends_terminal_and_stays_so(path, last):
    one = pod(spec={"restartPolicy": "Never"})
    for name in [*path, last]:
        one = written(one, desires(one)[name])
    assert one.status.phase == ("Succeeded" if last == "exited" else "Failed")
    for desired in desires(one).values():
        assert podstatus.status_patch(one, desired, now=NOW) is None


def test_a_waiting_reason_is_gone_once_it_runs():
    one = written(pod(), podstatus.waiting(pod(), SpillReason.NO_STOCK, "none left"))
    assert one.status.container_statuses[0].state.waiting.reason == "NoStock"
    one = written(one, desires(one)["running"])
    assert one.status.container_statuses[0].state.waiting is None
    assert condition_of(one.status.conditions, podstatus.SPILLED_CONDITION).status == "True"


def test_others_conditions_are_not_part_of_a_patch():
    foreign = {"conditions": [{"type": "example.com/Own", "status": "True"}]}
    patch = podstatus.status_patch(pod(status=foreign), desires(pod())["running"], now=NOW)
    assert "example.com/Own" not in {c["type"] for c in patch["conditions"]}


def test_a_message_alone_is_not_worth_a_write():
    one = written(pod(), podstatus.waiting(pod(), SpillReason.NO_STOCK, "none left at $2"))
    again = podstatus.waiting(one, SpillReason.NO_STOCK, "none left at $3")
    assert podstatus.status_patch(one, again, now=NOW) is None


@pytest.mark.parametrize(
    ("endpoint", "ip"), [("", ""), ("10.1.2.3", "10.1.2.3"), ("fd00::1", "fd00::1"), ("https://x", ""), ("host", "")]
)
def test_only_an_address_becomes_the_pods(endpoint, ip):
    desired = podstatus.running(pod(), provider="fake", instance=instance(endpoint=endpoint), now=NOW)
    assert desired.pod_ip == ip


@pytest.mark.parametrize(
    ("policy", "state", "code", "phase", "shown"),
    [
        ("Never", S.EXITED, 0, "Succeeded", 0),
        ("OnFailure", S.EXITED, 0, "Succeeded", 0),
        ("Always", S.EXITED, 0, "Failed", 0),
        ("Never", S.EXITED, 2, "Failed", 2),
        ("Never", S.EXITED, None, "Failed", 255),
        ("Never", S.FAILED, 0, "Failed", 0),
        ("Never", S.PREEMPTED, None, "Failed", 255),
    ],
)
def test_how_it_ended_makes_the_phase(policy, state, code, phase, shown):
    one = pod(spec={"restartPolicy": policy}, status=RAN)
    desired = podstatus.concluded(one, provider="fake", instance=instance(state, exit_code=code), now=NOW)
    assert (desired.phase, desired.container["terminated"]["exitCode"]) == (phase, shown)
    assert ("DisruptionTarget" in desired.conditions) is (state is S.PREEMPTED)


# --- marks ---

MARK = Mark(provider="fake", instance="i-1", price_per_hour=2.0)
OUTAGE = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def limited(*seconds):
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": second}
        for key, second in zip(OUTAGE, seconds, strict=False)
    ]


def adopt(one):
    return adoption_patch(one, MARK, outage_tolerance=3600, deletion_cost=-100)


def test_adoption_touches_seconds_only_and_tests_what_it_touches():
    one = pod(
        meta={"annotations": {"own": "x"}},
        spec={"tolerations": [{"operator": "Exists", "key": "a"}, *limited(300, 300)]},
    )
    patch = adopt(one)
    assert patch[0] == {"op": "test", "path": "/metadata/uid", "value": one.metadata.uid}
    assert {"op": "add", "path": "/spec/tolerations/1/tolerationSeconds", "value": 3600} in patch
    assert {"op": "test", "path": "/spec/tolerations/1/key", "value": OUTAGE[0]} in patch
    assert {"op": "add", "path": "/metadata/annotations/overspill.dev~1provider", "value": "fake"} in patch


def test_a_pod_without_annotations_is_changed_only_as_it_was_read():
    patch = adopt(pod())
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in patch


@pytest.mark.parametrize(
    "tolerations",
    [
        limited(7200, 3600),
        [{"operator": "Exists"}],
        [{"operator": "Exists", "effect": "NoExecute"}],
        [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in OUTAGE],
    ],
)
def test_patience_that_is_long_enough_is_left_alone(tolerations):
    patch = adopt(pod(spec={"tolerations": tolerations}))
    assert not [step for step in patch if step["path"].startswith("/spec")]


def test_missing_patience_is_added():
    added = [step["value"] for step in adopt(pod()) if step["path"].startswith("/spec")]
    assert added == [limited(3600)[:1], limited(3600, 3600)[1]]


def test_an_adopted_pod_is_not_written_again_and_a_users_deletion_cost_stays():
    annotations = {
        PROVIDER_ANNOTATION: "fake",
        "overspill.dev/instance": "i-1",
        "overspill.dev/price-per-hour": "2",
        DELETION_COST_ANNOTATION: "5",
    }
    assert adopt(pod(meta={"annotations": annotations}, spec={"tolerations": limited(3600, 3600)})) is None


def test_release_takes_off_what_is_there_and_no_more():
    patch = release_patch(pod(meta={"annotations": {PROVIDER_ANNOTATION: "fake", "own": "x"}}))
    assert [step["path"] for step in patch] == ["/metadata/uid", "/metadata/annotations/overspill.dev~1provider"]
    assert release_patch(pod()) is None


# --- node ---

SHAPE = nodeobject.NodeShape(name="overspill", resource="nvidia.com/gpu", gpus=16, cpus=512, memory_gib=4096)


def node(**changes) -> Node:
    body = nodeobject.node_body(SHAPE, health={"fake": None}, now=NOW)
    body["metadata"]["uid"] = "node-uid"
    for part, value in changes.items():
        body[part] = value
    return msgspec.convert(body, Node)


def test_a_new_node_is_closed_and_complete():
    keys = {taint.key for taint in node().spec.taints}
    assert {BASE_TAINT, SWITCH_TAINT} <= keys
    assert str(node().status.allocatable["nvidia.com/gpu"]) == "16"
    assert nodeobject.missing_taints(node()) == ()
    assert nodeobject.label_patch(node()) is None


def test_the_gate_is_never_missing():
    without = node(spec={"taints": []})
    assert SWITCH_TAINT not in {taint.key for taint in nodeobject.missing_taints(without)}
    assert len(nodeobject.missing_taints(without)) == 2
    weakened = node(spec={"taints": [{"key": BASE_TAINT, "effect": "PreferNoSchedule"}]})
    assert BASE_TAINT in {taint.key for taint in nodeobject.missing_taints(weakened)}


def test_a_node_of_ours_is_known_without_its_label_and_a_real_one_is_not():
    bare = {"name": "overspill"}
    assert nodeobject.is_virtual_kubelet(node(metadata=bare))
    assert not nodeobject.is_virtual_kubelet(node(metadata=bare, status={"nodeInfo": {"kubeletVersion": "v1.37.0"}}))
    assert not nodeobject.is_virtual_kubelet(node(metadata=bare, status={}))
    assert nodeobject.is_virtual_kubelet(node(status={}))


def test_a_quiet_node_is_not_written_and_a_beat_renews_every_condition():
    later = NOW + timedelta(minutes=5)
    assert nodeobject.status_patch(node(), SHAPE, health={"fake": None}, now=later, heartbeat=False) is None
    beat = nodeobject.status_patch(node(), SHAPE, health={"fake": None}, now=later, heartbeat=True)
    conditions = beat["status"]["conditions"]
    assert len(conditions) == 6
    assert {c["lastHeartbeatTime"] for c in conditions} == {"2030-01-01T12:05:00Z"}
    assert {c["lastTransitionTime"] for c in conditions} == {"2030-01-01T12:00:00Z"}


def test_a_provider_that_is_down_is_shown_and_the_node_stays_ready():
    patch = nodeobject.status_patch(node(), SHAPE, health={"fake": "HTTP 503"}, now=NOW, heartbeat=False)
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("overspill.dev/provider-fake", "False")


def test_a_changed_ceiling_is_written_to_the_node():
    bigger = msgspec.structs.replace(SHAPE, gpus=32)
    patch = nodeobject.status_patch(node(), bigger, health={"fake": None}, now=NOW, heartbeat=False)
    assert patch["status"]["allocatable"]["nvidia.com/gpu"] == "32"
