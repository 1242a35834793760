"""Which instances count as survivors, and when their absence is proven."""

from datetime import timedelta

import pytest

from overspill_cli.output import UsageError
from overspill_cli.surviving import Look, look, providers_of, survivors_in
from overspill_events.names import CLUSTER_TAG
from overspill_providers.errors import ErrorKind, ProviderError
from overspill_providers.protocol import LIVING, InstanceState, Inventory
from overspill_runtime.clock import SystemClock
from tests.support.bridge_cases import NOW, instance


class Shop:
    """A provider that answers its list with what it is given."""

    def __init__(self, name, answer):
        self.name, self.answer = name, answer

    async def list(self):
        if isinstance(self.answer, ProviderError):
            raise self.answer
        return self.answer


def inventory(*instances, complete=True):
    return Inventory(instances=instances, complete=complete)


@pytest.mark.parametrize("state", list(InstanceState))
def test_what_may_hold_a_gpu_survives(state):
    found = survivors_in(inventory(instance(state)), provider="p", now=NOW, cluster="cluster")
    assert bool(found) == (state in LIVING)


def test_only_our_tags_count_and_only_those_of_the_cluster_when_it_is_known():
    ours = instance(number=1)
    theirs = instance(number=2, tags={CLUSTER_TAG: "another"}, created_at=NOW - timedelta(hours=2))
    foreign = instance(number=3, tags={"team": "x"})
    everything = inventory(ours, theirs, foreign)
    assert [one.instance for one in survivors_in(everything, provider="p", now=NOW, cluster=None)] == ["i-2", "i-1"]
    (one,) = survivors_in(everything, provider="p", now=NOW, cluster="cluster")
    assert (one.instance, one.pod, one.node, one.age_seconds, one.price_per_hour) == (
        "i-1", "prod/web", "overspill", 60.0, 2.0,
    )  # fmt: skip


async def test_only_complete_lists_of_all_prove_absence():
    clock = SystemClock()
    empty, partial = Shop("a", inventory()), Shop("b", inventory(complete=False))
    silent = Shop("c", ProviderError(ErrorKind.UNKNOWN, "no answer"))
    assert (await look([empty], clock=clock)).proves_absence
    assert not (await look([empty, partial], clock=clock)).proves_absence
    seen = await look([empty, silent], clock=clock)
    assert not seen.proves_absence
    assert seen.problems == ("c: unknown: no answer",)
    assert not (await look([empty, Shop("d", inventory(instance()))], clock=clock)).proves_absence
    assert Look(survivors=(), problems=()).proves_absence


def test_providers_must_be_named_and_their_tokens_stay_out_of_errors():
    with pytest.raises(UsageError, match="OVERSPILL_BRIDGE_PROVIDERS"):
        providers_of({}, ())
    with pytest.raises(UsageError) as refused:
        providers_of({}, ("a=ftp://host?token=hush",))
    assert "hush" not in str(refused.value)
    given = providers_of(
        {"OVERSPILL_BRIDGE_PROVIDERS": "x=http://h?token=t"}, ("a=http://h?token=t", "b=http://h?token=t")
    )
    assert [one.name for one in given] == ["a", "b"], "what is given wins over the environment"
    (own,) = providers_of({"OVERSPILL_BRIDGE_PROVIDERS": "x=http://h?token=t"}, ())
    assert own.name == "x"
