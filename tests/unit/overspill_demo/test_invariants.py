"""Each promise of the demo can be broken, and then says so with its figures."""

import msgspec
import pytest

from overspill_demo.invariants import (
    RULES,
    Eviction,
    Lifetime,
    Observation,
    Return,
    duplicates,
    judge,
    orphans,
    peak_gpus,
)
from overspill_events.reasons import Place


def life(
    instance: str, pod_uid: str, created: float, ended: float | None, *, gpus: int = 1, ours: bool = True
) -> Lifetime:
    return Lifetime(instance=instance, pod_uid=pod_uid, gpus=gpus, created=created, ended=ended, ours=ours)


def eviction(uid: str, *, spilled: bool = True, others: int = 3) -> Eviction:
    return Eviction(uid=uid, pod=f"inference/{uid}", owner="a", spilled=spilled, was_ready=True, ready_others=others)


def returned(uid: str, *ends: Place, begun: bool = True) -> Return:
    return Return(uid=uid, pod=f"inference/{uid}", begun=begun, ends=ends)


GOOD = Observation(
    pods_spilled=2,
    spilled_left=(),
    vanished=(),
    returned=2,
    deployments_short=(),
    jobs_unfinished=(),
    gate_openings=1,
    gate_closings=1,
    gate_closed_at_end=True,
    evictions=(eviction("u1"), eviction("u2")),
    successions=(("u1", "u3"),),
    owners={"u1": "a", "u2": "a", "u3": "a", "u4": "b"},
    returns=(returned("u1", Place.HOME), returned("u2", Place.NOT_EVICTED), returned("u2", Place.HOME)),
    intents_before=frozenset({"u1", "u2"}),
    instances=(life("i1", "u1", 0, 5), life("i2", "u2", 1, 6)),
    announced_instances=frozenset({"i1", "i2"}),
    ended_instances=frozenset({"i1", "i2"}),
    pods_seen=frozenset({"u1", "u2", "u3"}),
    max_external_gpus=2,
    stream_gaps={"bridge": 0},
    events_in_stream=9,
    events_in_ledger=9,
    floor=1,
)

BROKEN = {
    "spilled-pods-came-home-or-finished": {"spilled_left": ("inference/u2",)},
    "spilled-pods-leave-by-eviction-only": {"vanished": ("inference/u2",)},
    "deployments-whole-at-home": {"deployments_short": ("a: 1 of 2 at home",)},
    "research-finished": {"jobs_unfinished": ("r",)},
    "no-instance-lives": {"instances": (life("i1", "u1", 0, None),)},
    "no-orphans": {"instances": (life("i1", "nobody", 0, 5), life("i2", "u2", 1, 6))},
    "no-duplicates": {"instances": (life("i1", "u1", 0, 5), life("i2", "u1", 4, 6))},
    "gate-opened-once-and-closed-once": {"gate_openings": 2},
    "owners-stay-above-their-floor": {"evictions": (eviction("u1", others=0),)},
    "nobody-evicted-twice": {"evictions": (eviction("u1"), eviction("u1"))},
    "intent-before-every-eviction": {"intents_before": frozenset({"u1"})},
    "successors-are-of-the-same-owner": {"successions": (("u1", "u4"),)},
    "every-return-ends-once-and-none-expires": {"returns": (returned("u1", Place.HOME), returned("u2"))},
    "every-instance-on-the-record": {"announced_instances": frozenset({"i1"})},
    "external-gpus-within-the-ceiling": {"max_external_gpus": 1},
    "no-gaps-in-the-stream": {"stream_gaps": {"bridge": 1}},
    "ledger-equals-stream": {"events_in_ledger": 8},
}


def test_a_good_run_keeps_every_promise():
    """Nothing is broken, and each says what it saw."""
    verdicts = judge(GOOD)
    assert [verdict.name for verdict in verdicts if not verdict.ok] == []
    assert all(verdict.detail for verdict in verdicts)


def test_every_rule_has_its_counter_example():
    """A rule that no observation can break would prove nothing."""
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str):
    """Exactly the rule at fault speaks (a lost instance may break more than one)."""
    seen = msgspec.structs.replace(GOOD, **BROKEN[name])
    broken = {verdict.name: verdict.detail for verdict in judge(seen) if not verdict.ok}
    assert name in broken


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ([returned("u2")], "2 returns: 1 home; 1 not ended: inference/u2"),
        ([returned("u2", Place.HOME, Place.HOME)], "2 returns: 3 home; 1 ended more than once: inference/u2"),
        ([returned("u2", Place.HOME, Place.NOT_EVICTED)], "1 ended more than once: inference/u2"),
        ([returned("u2", Place.HOME, begun=False)], "2 returns: 2 home; 1 ended without an intent: inference/u2"),
        ([returned("u2", Place.EXPIRED)], "2 returns: 1 expired, 1 home; 1 expired: inference/u2"),
        ([returned("u2", Place.NOT_EVICTED)], "1 evicted and not told so at the end: inference/u2"),
        ([], "1 returns: 1 home; 1 evicted and not told so at the end: inference/u2"),
    ],
)
def test_a_return_that_did_not_end_well_is_told_with_its_pod(second: list[Return], said: str):
    """Both pods were seen evicted."""
    seen = msgspec.structs.replace(GOOD, returns=(returned("u1", Place.HOME), *second))
    verdict = next(v for v in judge(seen) if v.name == "every-return-ends-once-and-none-expires")
    assert not verdict.ok
    assert said in verdict.detail


@pytest.mark.parametrize("place", [Place.HOME, Place.VIRTUAL, Place.PENDING])
def test_a_return_may_end_wherever_its_successor_was_seen(place: Place):
    """That it comes home in the end is another promise."""
    seen = msgspec.structs.replace(GOOD, returns=(returned("u1", Place.HOME), returned("u2", place)))
    assert all(verdict.ok for verdict in judge(seen))


@pytest.mark.parametrize("change", [{"gate_closings": 0}, {"gate_closed_at_end": False}, {"gate_openings": 0}])
def test_the_gate_must_open_and_close_once_and_end_closed(change: dict):
    """A gate that never opened proves as little as one that flapped."""
    seen = msgspec.structs.replace(GOOD, **change)
    assert not next(v for v in judge(seen) if v.name == "gate-opened-once-and-closed-once").ok


def test_foreign_instances_are_nobodys_business():
    """What does not carry our tag is neither orphan nor duplicate nor counted."""
    seen = msgspec.structs.replace(GOOD, instances=(life("x", "nobody", 0, None, ours=False, gpus=99),))
    assert (orphans(seen), duplicates(seen), peak_gpus(seen)) == ([], [], 0)


def test_one_after_the_other_is_no_duplicate():
    """A pod whose instance failed may get another; only two at once are a duplicate."""
    seen = msgspec.structs.replace(GOOD, instances=(life("i1", "u1", 0, 5), life("i2", "u1", 5, 9)))
    assert duplicates(seen) == []
    assert peak_gpus(seen) == 1
