"""What holds for every cluster (research: capacity calculator's properties)."""

from hypothesis import given
from hypothesis import strategies as st

from overspill_capacity.fit import Fits, find_home, fits
from overspill_capacity.requests import effective_requests
from overspill_capacity.room import HomeSnapshot, Reservation
from tests.unit.overspill_capacity.cluster import GPU, node, pod
from tests.unit.overspill_capacity.test_room import NOW

NAMES = ("n1", "n2", "n3", "elsewhere")


@st.composite
def nodes(draw):
    return [
        node(
            name,
            draw(st.integers(0, 8)),
            ready=draw(st.sampled_from(["True", "True", "False", "Unknown"])),
            cordoned=draw(st.booleans()),
        )
        for name in NAMES[:3]
    ]


@st.composite
def pods(draw):
    return [
        pod(
            f"p{i}",
            draw(st.integers(0, 8)),
            on=draw(st.sampled_from(("", *NAMES))),
            phase=draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
            meta={"deletionTimestamp": "2030-01-01T00:00:00Z"} if draw(st.booleans()) else None,
            status={"nominatedNodeName": draw(st.sampled_from(("", *NAMES)))},
        )
        for i in range(draw(st.integers(0, 6)))
    ]


def build(nodes, pods, **more):
    return HomeSnapshot.build(nodes, pods, resource=GPU, **more)


def free(snapshot):
    return {room.name: int(room.free_of(GPU)) for room in snapshot.eligible}


@given(nodes(), pods())
def test_free_is_within_bounds_on_every_node_and_summed_per_node(nodes, pods):
    snapshot = build(nodes, pods)
    for room in snapshot.rooms.values():
        assert 0 <= room.free_of(GPU) <= room.allocatable[GPU]
    assert snapshot.free_gpus == sum(free(snapshot).values()) == snapshot.room_for(1)
    assert snapshot.largest_block == max(free(snapshot).values(), default=0)
    assert all(snapshot.room_for(k) * k <= snapshot.free_gpus for k in (1, 2, 4, 8))


@given(nodes(), pods(), st.randoms(use_true_random=False))
def test_order_does_not_matter(nodes, pods, random):
    before = free(build(nodes, pods))
    random.shuffle(nodes)
    random.shuffle(pods)
    assert free(build(nodes, pods)) == before


@given(nodes(), pods(), st.sampled_from(NAMES), st.integers(1, 8))
def test_one_more_pod_or_reservation_never_frees_anything(nodes, pods, name, gpus):
    before = free(build(nodes, pods))
    more = free(build(nodes, [*pods, pod("new", gpus, on=name)]))
    claim = Reservation(key="new", node=name, requests=effective_requests(pod(gpus=gpus)), expires_at=NOW)
    booked = free(build(nodes, pods, reservations=[claim]))
    assert more == booked
    assert all(more[n] <= before[n] and (n == name or more[n] == before[n]) for n in before)


@given(nodes(), pods())
def test_finished_pods_are_neutral_and_terminating_ones_hold_as_before(nodes, pods):
    finished = [p for p in pods if p.status.phase not in {"Succeeded", "Failed"}]
    assert free(build(nodes, pods)) == free(build(nodes, finished))
    living = [
        p.__class__(
            metadata=p.metadata.__class__(name=p.metadata.name, uid=p.metadata.uid), spec=p.spec, status=p.status
        )
        for p in pods
    ]
    assert free(build(nodes, pods)) == free(build(nodes, living))


@given(nodes(), pods(), st.integers(1, 8))
def test_a_home_that_is_found_fits_and_then_holds_what_it_gave(nodes, pods, gpus):
    snapshot, asking = build(nodes, pods), pod("new", gpus)
    found = find_home(asking, snapshot)
    if found is None:
        assert not any(isinstance(fits(asking, room), Fits) for room in snapshot.rooms.values())
        assert snapshot.largest_block < gpus
        return
    assert fits(asking, snapshot.rooms[found]) == Fits()
    booked = snapshot.reserve(Reservation(key="new", node=found, requests=effective_requests(asking), expires_at=NOW))
    assert booked.free_gpus == snapshot.free_gpus - gpus
