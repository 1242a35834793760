"""A paused bridge starts nothing, and still ends, keeps and concludes what is there."""

import pytest

from overspill_bridge.policy import Acquire, Conclude, Defer, End, Keep, Wait, decide
from overspill_events.reasons import InstanceEnd, SpillReason
from overspill_providers.protocol import InstanceState
from tests.support.bridge_cases import RULES, case, pod, sighting

PAUSED = "paused by ada: audit"


def test_a_pod_without_an_instance_gets_none() -> None:
    assert isinstance(decide(case(), RULES), Acquire)
    assert decide(case(paused=PAUSED), RULES) == Defer(reason=SpillReason.PAUSED, detail=PAUSED)


def test_what_would_not_run_anyway_is_told_so_instead() -> None:
    not_opted_in = case(pod(meta={"labels": {}}), paused=PAUSED)
    decision = decide(not_opted_in, RULES)
    assert isinstance(decision, Defer)
    assert decision.reason is SpillReason.NOT_OPTED_IN
    assert isinstance(decide(case(paused=PAUSED, knows_enough=False), RULES), Wait)


@pytest.mark.parametrize("paused", [None, PAUSED])
def test_what_is_there_is_treated_alike(paused: str | None) -> None:
    running, ended = sighting(InstanceState.RUNNING), sighting(InstanceState.EXITED, exit_code=0)
    assert isinstance(decide(case(None, running, paused=paused), RULES), Keep)
    assert isinstance(decide(case(None, ended, paused=paused), RULES), Conclude)
    deleted = pod(meta={"deletionTimestamp": "2030-01-01T12:00:00Z"})
    assert decide(case(deleted, running, paused=paused), RULES) == End(targets=(running,), end=InstanceEnd.POD_DELETED)
