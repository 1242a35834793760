"""An instance's life is a function of time: no state is skipped, no end is undone."""

from hypothesis import given
from hypothesis import strategies as st

from overspill_lab.cloud.life import Life, Outcome, Timings
from overspill_providers.protocol import InstanceState

ORDER = [
    InstanceState.QUEUED,
    InstanceState.PROVISIONING,
    InstanceState.STARTING,
    InstanceState.RUNNING,
    InstanceState.STOPPING,
    InstanceState.EXITED,
    InstanceState.PREEMPTED,
    InstanceState.GONE,
]
TIMINGS = Timings(queue=1, provision=2, start=3, stop=4)


def life(**more):
    return Life(created_at=100.0, timings=TIMINGS, **more)


def test_phases_come_after_their_seconds():
    one = life()
    states = [one.state(100 + after) for after in (0, 1, 3, 6)]
    assert states == ORDER[:4]
    assert one.running_at(105.9) is None
    assert one.running_at(200) == 106


def test_a_container_that_exits_keeps_its_code_and_stops_costing():
    one = life(run_seconds=10, exit_code=3)
    assert one.state(115.9) is InstanceState.RUNNING
    assert one.state(116) is InstanceState.EXITED
    assert one.end(116).exit_code == 3
    assert one.ended_at(500) == 116


def test_termination_stops_before_it_is_gone_and_counts_until_then():
    one = life()
    one.request_stop(110)
    one.request_stop(112)
    assert one.state(113.9) is InstanceState.STOPPING
    assert one.ended_at(113.9) is None
    assert one.state(114) is InstanceState.GONE
    assert one.ended_at(200) == 114


def test_terminated_while_starting_it_never_ran():
    one = life()
    one.request_stop(102)
    assert one.running_at(1000) is None


def test_an_exited_instance_is_shown_until_it_is_terminated():
    one = life(run_seconds=1)
    assert one.state(10_000) is InstanceState.EXITED
    one.request_stop(10_001)
    assert one.state(10_001) is InstanceState.GONE
    assert one.ended_at(20_000) == 107, "a late termination does not lengthen the bill"


def test_an_end_by_the_provider_is_final():
    one = life()
    one.end_by_provider(Outcome(state=InstanceState.PREEMPTED, at=110))
    one.end_by_provider(Outcome(state=InstanceState.EXITED, at=120, exit_code=0))
    assert one.state(130) is InstanceState.PREEMPTED
    assert one.end(130).exit_code is None


@given(
    run=st.none() | st.floats(0, 20),
    stop=st.none() | st.floats(0, 40),
    preempt=st.none() | st.floats(0, 40),
    times=st.lists(st.floats(0, 60), min_size=2, max_size=20),
)
def test_life_only_goes_forward(run, stop, preempt, times):
    one = life(run_seconds=run)
    for at, act in sorted((t, a) for t, a in ((stop, "stop"), (preempt, "preempt")) if t is not None):
        if act == "stop":
            one.request_stop(100 + at)
        else:
            one.end_by_provider(Outcome(state=InstanceState.PREEMPTED, at=100 + at))
    after = max((t for t in (stop, preempt) if t is not None), default=0.0)
    seen = [ORDER.index(one.state(100 + after + t)) for t in sorted(times)]
    assert seen == sorted(seen)
    ends = [one.ended_at(100 + after + t) for t in sorted(times)]
    known = [end for end in ends if end is not None]
    assert len(set(known)) <= 1, "the end, once known, does not move"
    assert ends[len(ends) - len(known) :] == known
