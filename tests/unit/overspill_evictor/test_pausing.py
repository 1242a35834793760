"""A paused evictor returns nobody, and every spilled pod is told so with the pause's own words."""

import msgspec

from overspill_events.reasons import HoldReason
from overspill_evictor.policy import decide
from tests.unit.overspill_evictor.cluster import NOW, RULES, home, pod, snapshot, virtual


def test_a_pause_speaks_before_every_other_rule() -> None:
    serving = [pod(f"web-{number}", node="home-1", gpus=0) for number in range(2)]
    fit, bare = pod("away", gpus=1), pod("bare", gpus=1, owner="")
    state = snapshot(home(gpus=4), virtual(), fit, bare, *serving)
    assert [one.pod.metadata.name for one in decide(state, NOW, RULES).returns] == ["away"]
    plan = decide(msgspec.structs.replace(state, paused="paused by ada: audit"), NOW, RULES)
    assert plan.returns == ()
    assert {(one.pod.metadata.name, one.reason, one.detail) for one in plan.holds} == {
        ("away", HoldReason.PAUSED, "paused by ada: audit"),
        ("bare", HoldReason.PAUSED, "paused by ada: audit"),
    }
