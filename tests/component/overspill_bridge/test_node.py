"""The virtual node: what it is when it is made, and what is and is not put back later."""

import asyncio

import pytest

from overspill_events.catalog import NodeRegistered
from overspill_events.names import BASE_TAINT, GPU_RESOURCE, PREFERENCE_TAINT, SWITCH_TAINT, VIRTUAL_LABEL
from overspill_kube.client import PatchKind
from overspill_kube.effects import set_taints
from overspill_kube.outcomes import Done
from overspill_kube.resources import LEASES, NODES
from overspill_objects.core import Taint
from overspill_objects.meta import condition_of
from tests.support.bridge_place import NODE, bridge_place, said

pytestmark = pytest.mark.timeout(240)


async def taints(place):
    node = await place.client.get(NODES, NODE)
    return None if node is None else {(t.key, t.effect) for t in node.spec.taints}


ALL = {(BASE_TAINT, "NoSchedule"), (PREFERENCE_TAINT, "PreferNoSchedule"), (SWITCH_TAINT, "NoSchedule")}


async def registered(place):
    async def there():
        node = await place.client.get(NODES, NODE)
        return node if node is not None and await place.client.get(LEASES, NODE, "kube-node-lease") else None

    return await place.eventually(there)


async def test_a_new_node_is_closed_ready_and_stays_out_of_topologies(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge(max_external_gpus="16")
        node = await registered(place)
        assert {(t.key, t.effect) for t in node.spec.taints} >= ALL
        labels = node.metadata.labels
        assert labels[VIRTUAL_LABEL] == "true"
        assert labels["type"] == "virtual-kubelet"
        assert "kubernetes.io/hostname" not in labels
        assert "topology.kubernetes.io/zone" not in labels
        assert str(node.status.allocatable[GPU_RESOURCE]) == "16"
        assert {"cpu", "memory", "pods"} <= set(node.status.allocatable)
        assert condition_of(node.status.conditions, "Ready").status == "True"
        lease = await place.client.get(LEASES, NODE, "kube-node-lease")
        assert lease.spec.holder_identity == NODE
        assert lease.spec.lease_duration_seconds == 40

        async def healthy():
            one = await place.client.get(NODES, NODE)
            return condition_of(one.status.conditions, "overspill.dev/provider-fake").status == "True"

        await place.eventually(healthy)


async def test_permanent_taints_come_back_and_the_gate_is_left_alone(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        node = await registered(place)
        gate = [Taint(key=SWITCH_TAINT, effect="NoSchedule")]
        own = [Taint(key=BASE_TAINT, effect="NoSchedule"), Taint(key=PREFERENCE_TAINT, effect="PreferNoSchedule")]
        foreign = Taint(key="example.com/maintenance", effect="NoSchedule")
        await set_taints(place.client, NODE, add=[foreign], remove=[*gate, *own], expect_uid=node.metadata.uid)

        async def restored():
            return await taints(place) >= ALL - {(SWITCH_TAINT, "NoSchedule")}

        await place.eventually(restored)
        await asyncio.sleep(1.0)
        now = await taints(place)
        assert (SWITCH_TAINT, "NoSchedule") not in now, "the gate is the decider's"
        assert (foreign.key, foreign.effect) in now


@pytest.mark.parametrize("runs", [True, False])
async def test_the_label_by_which_others_know_the_node_comes_back(tmp_path, runs):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        node = await registered(place)
        if not runs:
            await place.stop_bridge()
        gone = {"metadata": {"labels": {VIRTUAL_LABEL: None}}}
        assert isinstance(await place.client.patch(NODES, NODE, gone, kind=PatchKind.MERGE), Done)
        if not runs:
            await place.start_bridge()

        async def restored():
            one = await place.client.get(NODES, NODE)
            return one if one.metadata.labels.get(VIRTUAL_LABEL) == "true" else None

        again = await place.eventually(restored)
        assert again.metadata.uid == node.metadata.uid
        await place.pod("later")
        await place.phase("later", "Running")


async def test_a_deleted_node_comes_back_closed_and_instances_live_on(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        node = await registered(place)
        await place.pod("stays")
        await place.phase("stays", "Running")
        await set_taints(
            place.client, NODE, remove=[Taint(key=SWITCH_TAINT, effect="NoSchedule")], expect_uid=node.metadata.uid
        )
        assert isinstance(await place.client.delete(NODES, NODE), Done)

        async def back():
            one = await place.client.get(NODES, NODE)
            return one is not None and one.metadata.uid != node.metadata.uid

        await place.eventually(back)
        assert await taints(place) >= ALL
        assert len(await place.cloud.living()) == 1
        assert [event.created for event in await said(place, NodeRegistered)] == [True, True]


async def test_a_restart_takes_the_node_up_as_it_is(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge()
        node = await registered(place)
        await set_taints(
            place.client, NODE, remove=[Taint(key=SWITCH_TAINT, effect="NoSchedule")], expect_uid=node.metadata.uid
        )
        await place.stop_bridge()
        await place.start_bridge()

        async def taken_up():
            return [event.created for event in await said(place, NodeRegistered)] == [True, False]

        await place.eventually(taken_up)
        again = await place.client.get(NODES, NODE)
        assert again.metadata.uid == node.metadata.uid, "an ordinary stop must not delete the node"
        assert (SWITCH_TAINT, "NoSchedule") not in await taints(place)


async def test_a_real_node_of_that_name_is_not_taken_over(tmp_path):
    async with bridge_place(tmp_path) as place:
        real = {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}
        assert isinstance(await place.client.create(NODES, real), Done)
        await place.start_bridge()

        async def refused():
            return "is not a virtual node of Overspill" in place.log()

        await place.eventually(refused)
        node = await place.client.get(NODES, NODE)
        assert VIRTUAL_LABEL not in node.metadata.labels
        assert node.spec.taints == () or all(t.key != BASE_TAINT for t in node.spec.taints)


async def test_another_condition_survives_every_report(tmp_path):
    async with bridge_place(tmp_path) as place:
        await place.start_bridge(node_status_interval="0.5", lease_duration="4")
        await registered(place)
        foreign = {"status": {"conditions": [{"type": "example.com/Checked", "status": "True", "reason": "Test"}]}}
        await place.client.patch(NODES, NODE, foreign, kind=PatchKind.STRATEGIC, subresource="status")
        first = condition_of((await place.client.get(NODES, NODE)).status.conditions, "Ready").last_heartbeat_time

        async def beaten():
            node = await place.client.get(NODES, NODE)
            return condition_of(node.status.conditions, "Ready").last_heartbeat_time > first and node

        node = await place.eventually(beaten)
        assert condition_of(node.status.conditions, "example.com/Checked").status == "True"
