"""One pod, everything known about it, one decision."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_bridge.policy import Acquire, Conclude, Defer, End, Finish, Keep, Leave, Wait, decide, keeper, may_end
from overspill_bridge.sighting import Flight
from overspill_events.names import INSTANCE_ANNOTATION, PROVIDER_ANNOTATION
from overspill_events.reasons import InstanceEnd, SpillReason
from overspill_providers.protocol import InstanceState
from tests.support.bridge_cases import MOMENT, NOW, RULES, UID, case, pod, sighting

S = InstanceState
DELETED = {"deletionTimestamp": "2030-01-01T11:59:00Z"}
FLIGHT = Flight(provider="fake", offering="a100", gpus=1, since=MOMENT - 1, is_ambiguous=True)
RAN = {"phase": "Running", "startTime": "2030-01-01T11:00:00Z"}


def test_a_new_pod_gets_an_instance():
    assert isinstance(decide(case(), RULES), Acquire)


def test_nothing_is_created_on_partial_or_stale_knowledge():
    assert isinstance(decide(case(knows_enough=False), RULES), Wait)
    assert isinstance(decide(case(api_is_fresh=False), RULES), Wait)
    assert decide(case(flight=FLIGHT), RULES).reason is SpillReason.AMBIGUOUS


def test_a_provider_that_is_down_is_named_only_when_it_is():
    assert decide(case(knows_enough=False), RULES).reason is None
    assert decide(case(knows_enough=False, provider_is_down=True), RULES).reason is SpillReason.PROVIDER_DOWN


def test_a_pod_that_did_not_opt_in_gets_nothing_but_is_removed_when_deleted():
    stranger = pod(meta={"labels": {}})
    assert decide(case(stranger), RULES).reason is SpillReason.NOT_OPTED_IN
    leaving = pod(meta={"labels": {}} | DELETED)
    assert isinstance(decide(case(leaving, knows_enough=False), RULES), Finish)


def test_a_deleted_pod_goes_only_when_nothing_of_it_is_left():
    leaving = pod(meta=DELETED)
    first = decide(case(leaving, sighting()), RULES)
    assert (type(first), first.end) == (End, InstanceEnd.POD_DELETED)
    ending = sighting(S.STOPPING, ending=InstanceEnd.POD_DELETED, ended_at=MOMENT - 5)
    assert isinstance(decide(case(leaving, ending), RULES), Wait)
    assert isinstance(decide(case(leaving, flight=FLIGHT), RULES), Wait)
    assert isinstance(decide(case(leaving, knows_enough=False), RULES), Wait)
    assert isinstance(decide(case(leaving), RULES), Finish)


@pytest.mark.parametrize("status", [None, RAN])
def test_a_deleted_pod_that_has_an_instance_waits_for_it_even_without_the_label(status):
    marks = {"annotations": {INSTANCE_ANNOTATION: "i-1", PROVIDER_ANNOTATION: "fake"}}
    leaving = pod(meta={"labels": {}} | marks | DELETED, status=status)
    assert isinstance(decide(case(leaving, knows_enough=False), RULES), Wait)
    assert isinstance(decide(case(leaving), RULES), Finish)


def test_a_termination_without_effect_is_repeated_after_a_while():
    leaving = pod(meta=DELETED)
    ending = sighting(S.RUNNING, ending=InstanceEnd.POD_DELETED, ended_at=MOMENT - 61)
    assert isinstance(decide(case(leaving, ending), RULES), End)


def test_a_finished_pod_keeps_its_status_and_loses_its_instance():
    finished = pod(status={"phase": "Failed"})
    decision = decide(case(finished, sighting()), RULES)
    assert (type(decision), decision.end) == (End, InstanceEnd.POD_FINISHED)
    assert isinstance(decide(case(finished), RULES), Leave)


@pytest.mark.parametrize(
    ("state", "end"),
    [(S.EXITED, InstanceEnd.EXITED), (S.FAILED, InstanceEnd.FAILED), (S.PREEMPTED, InstanceEnd.PREEMPTED)],
)
def test_an_ended_instance_concludes_its_pod(state, end):
    decision = decide(case(pod(status=RAN), sighting(state)), RULES)
    assert (type(decision), decision.end, decision.desired.phase) == (Conclude, end, "Failed")


@pytest.mark.parametrize("state", [S.UNKNOWN, S.STOPPING])
def test_a_state_that_says_nothing_changes_nothing(state):
    decision = decide(case(pod(status=RAN), sighting(state)), RULES)
    assert (type(decision), decision.desired) == (Keep, None)


def test_running_is_shown_and_starting_is_not_unless_something_was_written():
    assert decide(case(pod(), sighting(S.RUNNING)), RULES).desired.phase == "Running"
    assert decide(case(pod(), sighting(S.STARTING)), RULES).desired is None
    written = pod(status={"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "NoStock"}}}]})
    assert decide(case(written, sighting(S.STARTING)), RULES).desired.container == {
        "waiting": {"reason": "InstanceStarting"}
    }


def test_an_instance_that_does_not_start_is_given_up_but_a_pod_that_ran_is_not_restarted():
    old = sighting(S.STARTING, noted_at=MOMENT - 601)
    decision = decide(case(pod(), old), RULES)
    assert (type(decision), decision.end, decision.release) == (End, InstanceEnd.START_DEADLINE, True)
    assert isinstance(decide(case(pod(status=RAN), old), RULES), Keep)


@pytest.mark.parametrize("wrong", [timedelta(days=-1), timedelta(days=1)])
@pytest.mark.parametrize("created_here", [True, False])
def test_a_provider_whose_clock_is_wrong_has_no_instance_given_up_sooner_or_later(wrong, created_here):
    young, old = (
        sighting(S.STARTING, created_at=NOW + wrong, noted_at=MOMENT - age, created_here=created_here)
        for age in (599, 600)
    )
    assert isinstance(decide(case(pod(), young), RULES), Keep)
    assert isinstance(decide(case(pod(), old), RULES), End)


@pytest.mark.parametrize("trace", ["started", "marked", "seen"])
def test_a_lost_instance_fails_the_pod_and_never_gets_a_second(trace):
    one = pod(
        status=RAN if trace == "started" else None,
        meta={"annotations": {INSTANCE_ANNOTATION: "i-1"}} if trace == "marked" else None,
    )
    known = case(one, was_lost=trace == "seen")
    decision = decide(known, RULES)
    assert (type(decision), decision.end, decision.desired.reason) == (
        Conclude,
        InstanceEnd.LOST,
        "ProviderInstanceLost",
    )
    unsure = case(one, was_lost=trace == "seen", knows_enough=False)
    assert isinstance(decide(unsure, RULES), Wait)


@pytest.mark.parametrize("meta", [{}, DELETED, {"labels": {}} | DELETED, {"labels": {}}])
@pytest.mark.parametrize("status", [None, RAN])
def test_a_provider_that_is_not_configured_proves_nothing_about_its_instance(meta, status):
    marked = {"annotations": {INSTANCE_ANNOTATION: "i-1", PROVIDER_ANNOTATION: "former"}}
    decision = decide(case(pod(meta=meta | marked, status=status), missing_provider="former"), RULES)
    assert (type(decision), decision.reason) == (Wait, SpillReason.PROVIDER_DOWN)
    assert "provider former is not configured" in decision.detail


def test_a_deleted_pod_whose_instance_nobody_can_ask_for_stays_even_when_it_has_finished():
    finished = pod(meta=DELETED, status={"phase": "Succeeded"})
    assert isinstance(decide(case(finished, missing_provider="former"), RULES), Wait)


def test_an_instance_that_a_renamed_provider_shows_is_kept():
    assert isinstance(decide(case(pod(status=RAN), sighting(), missing_provider="former"), RULES), Keep)


def test_marks_that_were_taken_off_are_not_a_loss_even_if_the_cache_still_shows_them():
    marked = pod(meta={"annotations": {INSTANCE_ANNOTATION: "i-1"}})
    assert isinstance(decide(case(marked, released=frozenset({"i-1"})), RULES), Acquire)


def test_one_miss_is_no_loss_and_two_are():
    one = pod(status=RAN)
    assert isinstance(decide(case(one, sighting(misses=1)), RULES), Keep)
    assert isinstance(decide(case(one, sighting(misses=2)), RULES), Conclude)


def test_a_new_instance_that_lists_do_not_show_yet_is_not_lost():
    young = sighting(S.QUEUED, listed=False, misses=5, noted_at=MOMENT - 29)
    assert isinstance(decide(case(pod(), young), RULES), Keep)
    old = sighting(S.QUEUED, listed=False, misses=5, noted_at=MOMENT - 31)
    assert not isinstance(decide(case(pod(), old, was_lost=True), RULES), Keep)


def test_the_way_an_instance_ended_is_told_even_after_it_has_left_the_list():
    gone = sighting(S.EXITED, misses=9, exit_code=0)
    decision = decide(case(pod(spec={"restartPolicy": "Never"}, status=RAN), gone), RULES)
    assert (type(decision), decision.desired.phase) == (Conclude, "Succeeded")


def test_deadline_counts_from_the_start_and_only_from_it():
    limited = pod(spec={"activeDeadlineSeconds": 1800}, status=RAN)
    decision = decide(case(limited, sighting()), RULES)
    assert (type(decision), decision.end, decision.desired.reason) == (
        Conclude,
        InstanceEnd.POD_DEADLINE,
        "DeadlineExceeded",
    )
    assert isinstance(decide(case(pod(spec={"activeDeadlineSeconds": 1800}), sighting()), RULES), Keep)


def test_of_several_instances_the_running_one_stays_then_the_oldest():
    waiting = sighting(S.STARTING, number=1, created_at=NOW - timedelta(hours=2))
    younger = sighting(S.RUNNING, number=2, created_at=NOW - timedelta(minutes=1))
    older = sighting(S.RUNNING, number=3, created_at=NOW - timedelta(minutes=2))
    decision = decide(case(pod(), waiting, younger, older), RULES)
    assert (type(decision), decision.end) == (End, InstanceEnd.DUPLICATE)
    assert {s.instance.id for s in decision.targets} == {"i-1", "i-2"}


states = st.sampled_from(list(S))


@given(
    chosen=st.lists(st.tuples(states, st.integers(0, 3), st.booleans()), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    deleted=st.booleans(),
)
def test_no_decision_depends_on_order_and_a_living_instance_excludes_another(chosen, order, phase, deleted):
    sightings = [
        sighting(
            state,
            number=number,
            misses=misses,
            ending=InstanceEnd.DUPLICATE if ending else None,
            ended_at=MOMENT - 1 if ending else None,
        )
        for number, (state, misses, ending) in enumerate(chosen)
    ]
    one = pod(status={"phase": phase}, meta=DELETED if deleted else None)
    known = case(one, *sightings)
    decision = decide(known, RULES)
    shuffled = list(sightings)
    order.shuffle(shuffled)
    other = decide(case(one, *shuffled), RULES)
    assert type(other) is type(decision)
    assert keeper(case(one, *shuffled), RULES) == keeper(known, RULES)
    living = [s for s in sightings if s.is_living(now=MOMENT, list_lag=RULES.list_lag)]
    if living:
        assert not isinstance(decision, Acquire | Finish), "something of it is still out there"
    if isinstance(decision, End) and decision.end is InstanceEnd.DUPLICATE:
        assert keeper(known, RULES) not in decision.targets
    if phase in ("Succeeded", "Failed"):
        assert not isinstance(decision, Conclude | Keep | Acquire), "terminal is terminal"


@pytest.mark.parametrize(
    ("end", "live", "justified"),
    [
        (InstanceEnd.POD_GONE, None, True),
        (InstanceEnd.POD_GONE, pod(uid="another"), True),
        (InstanceEnd.POD_GONE, pod(), False),
        (InstanceEnd.ORPHAN, pod(), False),
        (InstanceEnd.POD_DELETED, pod(meta=DELETED), True),
        (InstanceEnd.POD_DELETED, pod(), False),
        (InstanceEnd.POD_FINISHED, pod(status={"phase": "Succeeded"}), True),
        (InstanceEnd.POD_FINISHED, pod(status=RAN), False),
        (InstanceEnd.LOST, pod(status=RAN), False),
        (InstanceEnd.START_DEADLINE, pod(status=RAN), False),
        (InstanceEnd.START_DEADLINE, pod(), True),
        (InstanceEnd.DUPLICATE, pod(status=RAN), True),
    ],
)
def test_the_live_pod_has_the_last_word_on_a_termination(end, live, justified):
    assert may_end(end, live, uid=UID) is justified


def test_what_is_unsupported_or_wrong_is_said_and_not_asked_for():
    assert decide(case(pod(spec={"hostNetwork": True})), RULES).reason is SpillReason.UNSUPPORTED
    bad = pod(meta={"annotations": {"overspill.dev/max-price-per-hour": "-3"}})
    decision = decide(case(bad), RULES)
    assert (type(decision), decision.reason) == (Defer, SpillReason.BAD_ANNOTATION)
