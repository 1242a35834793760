"""Counting free devices at home."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from overspill_capacity.room import HomeSnapshot, Ineligible, Reservation
from overspill_events.reasons import UnknownCause
from tests.unit.overspill_capacity.cluster import GPU, container, node, pod

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def home(nodes, pods=(), **more) -> HomeSnapshot:
    return HomeSnapshot.build(nodes, pods, resource=more.pop("resource", GPU), **more)


def reservation(key="uid-x", on="n1", gpus=2, seconds=60.0):
    return Reservation(key=key, node=on, requests={GPU: Decimal(gpus)}, expires_at=NOW + timedelta(seconds=seconds))


def test_free_is_clamped_per_node_never_in_the_sum():
    """A node whose devices fell below what is used must not hide another node's free ones."""
    snapshot = home([node("n1", 2), node("n2", 8)], [pod("a", 8, on="n1"), pod("b", 3, on="n2")])
    assert (snapshot.free_gpus, snapshot.total_gpus, snapshot.used_gpus) == (5, 10, 11)


def test_terminating_pods_hold_until_they_are_gone_and_finished_ones_do_not():
    ending = pod("a", 2, on="n1", meta={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    snapshot = home([node()], [ending, pod("b", 4, on="n1", phase="Succeeded"), pod("c", 4, on="n1", phase="Failed")])
    assert (snapshot.free_gpus, snapshot.releasing_gpus) == (6, 2)


def test_a_pod_whose_phase_nobody_has_told_holds():
    assert home([node()], [pod("a", 2, on="n1", phase="Unknown")]).free_gpus == 6


def test_nominated_pods_hold_and_are_not_counted_twice_once_bound():
    nominated = {"nominatedNodeName": "n1"}
    assert home([node()], [pod("a", 3, status=nominated)]).free_gpus == 5
    assert home([node()], [pod("a", 3, on="n1", status=nominated)]).free_gpus == 5


def test_reservations_hold_until_expiry_or_binding():
    assert home([node()], reservations=[reservation()], now=NOW).free_gpus == 6
    assert home([node()], reservations=[reservation()], now=NOW + timedelta(seconds=60)).free_gpus == 8
    assert home([node()], [pod("x", 2, on="n1")], reservations=[reservation()], now=NOW).free_gpus == 6
    assert home([node()], reservations=[reservation(on="gone")], now=NOW).free_gpus == 8


def test_a_batch_does_not_give_one_place_twice():
    snapshot = home([node()]).reserve(reservation("one", gpus=5)).reserve(reservation("two", gpus=2))
    assert (snapshot.free_gpus, snapshot.largest_block) == (1, 1)
    with pytest.raises(KeyError):
        snapshot.reserve(reservation(on="nowhere"))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (node("n2", 8, ready="False"), Ineligible.NOT_READY),
        (node("n2", 8, ready="Unknown"), Ineligible.NOT_READY),
        (node("n2", 8, cordoned=True), Ineligible.CORDONED),
        (node("n2", 8, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]), Ineligible.TAINTED),
        (node("n2", 8, taints=[{"key": "team", "effect": "NoExecute"}]), Ineligible.TAINTED),
    ],
)
def test_what_is_not_eligible_is_not_free_and_says_why(bad, why):
    snapshot = home([node("n1", 1), bad])
    assert (snapshot.free_gpus, snapshot.total_gpus, snapshot.ineligible) == (1, 9, {why: 8})


def test_soft_taints_and_the_devices_own_taint_do_not_matter():
    soft = node("n1", 4, taints=[{"key": "old", "effect": "PreferNoSchedule"}])
    dedicated = node("n2", 4, taints=[{"key": GPU, "effect": "NoSchedule"}])
    assert home([soft, dedicated]).free_gpus == 8


def test_virtual_nodes_are_not_home():
    snapshot = home([node("n1", 4), node("v", 10_000, labels={"overspill.dev/virtual": "true"})], [pod("a", 5, on="v")])
    assert (snapshot.free_gpus, snapshot.total_gpus, list(snapshot.rooms)) == (4, 4, ["n1"])


def test_blocks_and_room():
    snapshot = home([node("n1", 8), node("n2", 8), node("n3", 8)], [pod("a", 5, on="n1"), pod("b", 1, on="n2")])
    assert (snapshot.free_gpus, snapshot.largest_block) == (18, 8)
    assert [snapshot.room_for(k) for k in (1, 2, 4, 8)] == [18, 8, 3, 1]
    with pytest.raises(ValueError, match="at least one device"):
        snapshot.room_for(0)


@pytest.mark.parametrize("resource", ["google.com/tpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"])
def test_any_resource_name_works(resource):
    snapshot = home([node("n1", 4, resource=resource)], [pod("a", 1, on="n1", resource=resource)], resource=resource)
    assert snapshot.free_gpus == 3


def test_a_node_without_devices_is_ready_but_counts_nothing():
    snapshot = home([node("n1", 4), node("n2", None)])
    assert (snapshot.unknown, snapshot.free_gpus, snapshot.rooms["n2"].ineligible) == (None, 4, Ineligible.NO_DEVICES)


def test_a_resource_that_no_home_node_ever_offered_is_unknown_not_zero():
    snapshot = home([node("n1", 4)], resource="nvidia.com/gpus")
    assert (snapshot.unknown, snapshot.detail) == (UnknownCause.NO_SERIES, "no home node offers nvidia.com/gpus")
    assert home([]).unknown is UnknownCause.NO_SERIES


def test_a_home_that_lost_all_its_nodes_to_illness_is_full_not_unknown():
    assert (home([node(ready="False")]).unknown, home([node(ready="False")]).free_gpus) == (None, 0)


@pytest.mark.parametrize(
    ("nodes", "pods", "device_nodes", "named"),
    [
        ([node("n1", "many")], [], (), "n1 cannot be counted: quantity 'many'"),
        ([node("n1", 8)], [pod("a", spec={"containers": [container("many")], "nodeName": "n1"})], (), "pod ml/a"),
        ([node("n1", 8), node("n2", 0)], [], {"n2"}, "n2 cannot be counted: offers devices through DRA"),
        (
            [node("n1", 8)],
            [pod("a", on="n1", status={"extendedResourceClaimStatus": {"x": 1}})],
            (),
            "holds devices through DRA",
        ),
    ],
)
def test_what_cannot_be_counted_makes_the_whole_unknown(nodes, pods, device_nodes, named):
    snapshot = home(nodes, pods, device_nodes=device_nodes)
    assert snapshot.unknown is UnknownCause.UNKNOWN
    assert named in snapshot.detail


def test_a_node_with_a_device_plugin_count_is_counted_by_it_alone():
    assert home([node("n1", 8)], device_nodes={"n1"}).unknown is None
