"""What lists, creates and terminations add up to."""

from hypothesis import given
from hypothesis import strategies as st

from overspill_bridge.book import Book, key_of
from overspill_bridge.sighting import Flight
from overspill_events.names import CLUSTER_TAG, NODE_TAG, POD_UID_TAG
from overspill_events.reasons import InstanceEnd
from overspill_providers.protocol import InstanceState, Inventory
from tests.support.bridge_cases import IDENTITY, UID, instance

LAG = 10.0


def book(*providers, all_shown_at=0.0):
    return Book(identity=IDENTITY, providers=providers or ("fake",), all_shown_at=all_shown_at)


def complete(*instances):
    return Inventory(instances=instances, complete=True)


def partial(*instances):
    return Inventory(instances=instances, complete=False)


def flight(**more):
    return Flight(**({"provider": "fake", "offering": "a100", "gpus": 2, "since": 0.0} | more))


def test_the_key_fits_everywhere_and_is_the_same_at_each_try():
    assert key_of(UID) == key_of(UID)
    assert len(key_of(UID)) <= 63


def test_foreign_instances_are_not_even_noticed():
    foreign = [
        instance(tags={}),
        instance(tags=IDENTITY.tags(pod_uid=UID, pod_name="a/b") | {CLUSTER_TAG: "other"}),
        instance(tags=IDENTITY.tags(pod_uid=UID, pod_name="a/b") | {NODE_TAG: "other"}),
        instance(tags=IDENTITY.tags(pod_uid=UID, pod_name="a/b") | {POD_UID_TAG: ""}),
    ]
    one = book()
    assert one.merge("fake", complete(*foreign), started_at=1.0) == set()
    assert one.pods() == ()


def test_an_incomplete_list_proves_presence_and_never_absence():
    one = book()
    one.merge("fake", complete(instance()), started_at=1.0)
    for at in range(2, 10):
        one.merge("fake", partial(), started_at=float(at))
    (seen,) = one.of(UID)
    assert seen.misses == 0
    assert one.passes["fake"] == 1
    changed = one.merge("fake", partial(instance(InstanceState.EXITED)), started_at=20.0)
    assert changed == {UID}


def test_two_complete_lists_without_it_make_it_gone_and_one_does_not():
    one = book()
    one.merge("fake", complete(instance()), started_at=1.0)
    one.merge("fake", complete(), started_at=2.0)
    assert one.of(UID)[0].is_living(now=3.0, list_lag=LAG)
    one.merge("fake", complete(), started_at=3.0)
    assert one.of(UID)[0].is_gone(now=3.0, list_lag=LAG)


def test_one_that_comes_back_was_never_gone():
    one = book()
    one.merge("fake", complete(instance()), started_at=1.0)
    one.merge("fake", complete(), started_at=2.0)
    assert one.merge("fake", complete(instance()), started_at=3.0) == {UID}
    one.merge("fake", complete(), started_at=4.0)
    assert not one.of(UID)[0].is_gone(now=4.0, list_lag=LAG)


def test_another_providers_list_says_nothing():
    one = book("fake", "other")
    one.merge("fake", complete(instance()), started_at=1.0)
    for at in (2.0, 3.0):
        one.merge("other", complete(), started_at=at)
    assert one.of(UID)[0].misses == 0


def test_a_list_begun_before_the_create_was_answered_says_nothing_about_it():
    one = book()
    one.asked(UID, flight())
    one.created(UID, provider="fake", instance=instance(InstanceState.QUEUED), now=5.0)
    one.merge("fake", complete(), started_at=4.9)
    assert one.of(UID)[0].misses == 0
    assert one.flight(UID) is None


def test_a_list_begun_before_the_termination_does_not_prove_it():
    one = book()
    one.merge("fake", complete(instance()), started_at=1.0)
    one.ending(one.of(UID)[0], InstanceEnd.POD_DELETED, now=5.0)
    one.merge("fake", complete(), started_at=4.0)
    assert not one.of(UID)[0].is_gone(now=6.0, list_lag=LAG)
    one.merge("fake", complete(), started_at=5.5)
    assert one.of(UID)[0].is_gone(now=6.0, list_lag=LAG)


def test_the_first_reason_for_an_end_stays():
    one = book()
    one.merge("fake", complete(instance()), started_at=1.0)
    one.ending(one.of(UID)[0], InstanceEnd.DUPLICATE, now=2.0)
    one.ending(one.of(UID)[0], InstanceEnd.POD_DELETED, now=9.0)
    assert (one.of(UID)[0].ending, one.of(UID)[0].ended_at) == (InstanceEnd.DUPLICATE, 9.0)


def test_an_ambiguous_create_is_disproved_only_by_lists_after_it_and_after_the_lag():
    one = book()
    one.asked(UID, flight())
    one.left_open(UID, now=1.0)
    one.merge("fake", complete(), started_at=0.5)
    one.merge("fake", complete(), started_at=1.5)
    one.merge("fake", complete(), started_at=2.5)
    assert not one.flight(UID).is_disproved(now=5.0, list_lag=LAG), "its list may lag"
    assert one.flight(UID).is_disproved(now=11.5, list_lag=LAG)


def test_a_create_that_is_being_asked_is_never_disproved():
    one = book()
    one.asked(UID, flight())
    for at in (1.0, 2.0, 3.0):
        one.merge("fake", complete(), started_at=at)
    assert not one.flight(UID).is_disproved(now=100.0, list_lag=LAG)


def test_gpus_count_from_the_request_on_until_the_end_is_proved():
    one = book()
    one.asked(UID, flight(gpus=2))
    assert one.gpus_in_use(now=0.0, list_lag=LAG) == 2
    one.created(UID, provider="fake", instance=instance(InstanceState.QUEUED, gpus=2), now=1.0)
    assert one.gpus_in_use(now=1.0, list_lag=LAG) == 2
    one.merge("fake", complete(instance(InstanceState.RUNNING, gpus=2)), started_at=2.0)
    one.ending(one.of(UID)[0], InstanceEnd.POD_DELETED, now=3.0)
    assert one.gpus_in_use(now=3.5, list_lag=LAG) == 2
    one.merge("fake", complete(), started_at=4.0)
    assert one.gpus_in_use(now=4.0, list_lag=LAG) == 0


def test_old_pods_need_two_complete_lists_of_every_provider():
    one = book("fake", "other")
    assert one.knows_enough(new_pod=True)
    one.merge("fake", complete(), started_at=1.0)
    one.merge("fake", complete(), started_at=2.0)
    one.merge("other", complete(), started_at=1.0)
    one.merge("other", partial(), started_at=2.0)
    assert not one.knows_enough(new_pod=False)
    one.merge("other", complete(), started_at=3.0)
    assert one.knows_enough(new_pod=False)


def test_lists_that_may_lag_behind_the_last_leader_prove_nothing_about_old_pods():
    one = book(all_shown_at=30.0)
    for at in (1.0, 2.0, 29.9):
        one.merge("fake", complete(), started_at=at)
    assert not one.knows_enough(new_pod=False)
    assert one.knows_enough(new_pod=True)
    one.merge("fake", complete(), started_at=30.0)
    assert not one.knows_enough(new_pod=False)
    one.merge("fake", complete(), started_at=31.0)
    assert one.knows_enough(new_pod=False)


@given(
    lists=st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 3))), max_size=12),
)
def test_nothing_that_was_in_one_of_the_last_two_complete_lists_is_gone(lists):
    one = book()
    for at, (is_complete, numbers) in enumerate(lists):
        shown = tuple(instance(number=n, uid=f"uid-{n}") for n in numbers)
        one.merge("fake", Inventory(instances=shown, complete=is_complete), started_at=float(at))
    ever = set().union(*(numbers for _, numbers in lists)) if lists else set()
    for n in ever:
        last_seen = max(at for at, (_, numbers) in enumerate(lists) if n in numbers)
        misses = sum(is_complete for is_complete, _ in lists[last_seen + 1 :])
        (seen,) = one.of(f"uid-{n}")
        assert seen.misses == misses
        assert seen.is_gone(now=1e9, list_lag=LAG) is (misses >= 2)


def test_forgetting_the_last_sighting_forgets_the_pod():
    one = book()
    one.merge("fake", complete(instance(), instance(number=2)), started_at=1.0)
    for seen in one.of(UID):
        one.forget(seen)
    assert one.pods() == ()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["asked", "refused", "left_open", "created", "ending", "forget", "merge", "miss"]),
        st.sampled_from(["uid-1", "uid-2"]),
        st.sampled_from(["i-1", "i-2"]),
        st.sampled_from(list(InstanceState)),
        st.integers(0, 8),
    ),
    max_size=40,
)


def take(one, step, at):
    """One step of a random history; those that a bridge never takes are left out."""
    what, uid, name, state, gpus = step
    seen = instance(state, id=name, gpus=gpus, tags=IDENTITY.tags(pod_uid=uid, pod_name="a/b"))
    match what:
        case "asked":
            one.asked(uid, flight(gpus=gpus, since=at))
        case "refused":
            one.refused(uid)
        case "left_open" if one.flight(uid) is not None:
            one.left_open(uid, now=at)
        case "created":
            one.created(uid, provider="fake", instance=seen, now=at)
        case "ending" if one.of(uid):
            one.ending(one.of(uid)[0], InstanceEnd.POD_DELETED, now=at)
        case "forget" if one.of(uid):
            one.forget(one.of(uid)[0])
        case "merge":
            one.merge("fake", complete(seen), started_at=at)
        case "miss":
            one.merge("fake", complete(), started_at=at)


@given(STEPS)
def test_the_count_of_gpus_is_what_sightings_and_flights_add_up_to(steps):
    one = book()
    for at, step in enumerate(steps):
        take(one, step, float(at))
        for moment in (float(at), at + LAG + 1):
            living = [s for uid in one.pods() for s in one.of(uid) if s.is_living(now=moment, list_lag=LAG)]
            expected = sum(s.instance.gpus for s in living) + sum(f.gpus for f in one.flights().values())
            assert one.gpus_in_use(now=moment, list_lag=LAG) == expected
