"""Leadership against an API server: one body at a time, and none that outlives its lease."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from overspill_kube.client import Client, PatchKind, connect
from overspill_kube.errors import KubeUnavailable
from overspill_kube.lease import run_as_leader
from overspill_kube.outcomes import Done
from overspill_kube.resources import LEASES
from overspill_kube.settings import KubeSettings
from overspill_objects.coordination import Lease
from overspill_runtime.clock import SystemClock
from tests.support.faulty_proxy import faulty_proxy
from tests.support.kube_place import Place, done, eventually

# Seconds. A machine that stands still for a few costs nobody a lease that the test does not take.
DURATION = 12.0
TIMES = {"duration": DURATION, "renew": 6.0, "retry": 0.2}


class Candidate:
    """One process that stands for election, and the story of its bodies."""

    def __init__(self, client: Client, place: Place, identity: str) -> None:
        self._client, self._place = client, place
        self.identity = identity
        self.leading = asyncio.Event()
        self.story: list[str] = []
        self.body: Callable[[Client], Awaitable[None]] = self.work

    async def work(self, _: Client) -> None:
        """A body that works until it is stopped, and takes a moment to stop."""
        self.story.append("begins")
        self.leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.leading.clear()
            self.story.append("ends")

    async def run(self) -> None:
        await run_as_leader(
            self._client,
            name="leader",
            namespace=self._place.namespace,
            identity=self.identity,
            body=self.body,
            on_taken=lambda: self.story.append("taken"),
            on_lost=lambda reason: self.story.append(f"lost: {reason}"),
            **TIMES,
        )

    @contextlib.asynccontextmanager
    async def standing(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def leads(self) -> None:
        await asyncio.wait_for(self.leading.wait(), 30)


async def lease_of(place: Place) -> Lease:
    lease = await place.client.get(LEASES, "leader", place.namespace)
    assert lease is not None
    return lease


async def test_a_leader_leaves_its_name_in_whole_seconds_and_takes_it_away(client: Client, place: Place) -> None:
    candidate = Candidate(client, place, "one")
    async with candidate.standing():
        await candidate.leads()
        spec = (await lease_of(place)).spec
        assert (spec.holder_identity, spec.lease_duration_seconds) == ("one", DURATION)
    assert (await lease_of(place)).spec.holder_identity == ""
    assert candidate.story == ["taken", "begins", "ends", "lost: CancelledError"]


async def test_a_fraction_of_a_second_is_rounded_up_on_the_wire(client: Client, place: Place) -> None:
    began = asyncio.Event()

    async def body(_: Client) -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(
        run_as_leader(client, name="leader", namespace=place.namespace, identity="one", body=body, duration=2.4)
    )
    await asyncio.wait_for(began.wait(), 30)
    assert (await lease_of(place)).spec.lease_duration_seconds == 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_second_candidate_waits_and_takes_over_after_a_goodbye(client: Client, place: Place) -> None:
    one, two = Candidate(client, place, "one"), Candidate(client, place, "two")
    async with one.standing() as first:
        await one.leads()
        async with two.standing():
            await asyncio.sleep(2 * TIMES["retry"])
            assert two.story == []
            first.cancel()
            await two.leads()
            assert one.story[-2:] == ["ends", "lost: CancelledError"]
            assert (await lease_of(place)).spec.lease_transitions == 1


async def test_a_body_that_returns_ends_the_election(client: Client, place: Place) -> None:
    candidate = Candidate(client, place, "one")

    async def body(_: Client) -> None:
        candidate.story.append("done")

    candidate.body = body
    await asyncio.wait_for(candidate.run(), 30)
    assert candidate.story == ["taken", "done", "lost: done"]
    assert (await lease_of(place)).spec.holder_identity == ""


async def test_a_crash_of_the_body_releases_leadership_and_is_heard(client: Client, place: Place) -> None:
    """The crash comes out, nobody renews any more, and another candidate need not wait for the lease to expire."""
    one, two = Candidate(client, place, "one"), Candidate(client, place, "two")

    async def crash(_: Client) -> None:
        raise ArithmeticError("a bug in the body")

    one.body = crash
    with pytest.raises(ArithmeticError):
        await asyncio.wait_for(one.run(), 30)
    assert one.story == ["taken", "lost: ArithmeticError: a bug in the body"]
    assert (await lease_of(place)).spec.holder_identity == ""
    async with two.standing():
        await two.leads()


async def test_a_partition_stops_the_body_before_another_one_begins(
    kubeconfig: Path, client: Client, place: Place, tmp_path: Path
) -> None:
    """The leader is cut off: its body has ended before the other candidate's begins, then it stands again."""
    async with contextlib.AsyncExitStack() as stack:
        proxy, proxied = await stack.enter_async_context(faulty_proxy(kubeconfig, tmp_path))
        settings = KubeSettings(kubeconfig=str(proxied), request_seconds=1)
        one = Candidate(await stack.enter_async_context(connect(settings)), place, "one")
        two = Candidate(client, place, "two")
        two.story = one.story  # one common story, in order
        await stack.enter_async_context(one.standing())
        await one.leads()
        await stack.enter_async_context(two.standing())
        proxy.freeze()
        await two.leads()
        assert one.story == ["taken", "begins", "ends", "lost: no renewal for 6 s", "taken", "begins"]
        assert (await lease_of(place)).spec.holder_identity == "two"
        proxy.thaw()
        proxy.cut_all()
        await asyncio.sleep(3 * TIMES["retry"])
        assert two.leading.is_set()
        assert not one.leading.is_set()


class Jumping(SystemClock):
    """A clock that can find that time has passed, as a process does that was stopped and goes on."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


async def test_who_was_asleep_for_longer_than_the_lease_writes_nothing_when_it_wakes(
    client: Client, place: Place
) -> None:
    """The body had no chance to be stopped: between its last look and its write lies the time it was asleep."""
    clock = Jumping()
    told: list[str] = []

    async def body(kube: Client) -> None:
        fresh = {"metadata": {"name": "fresh"}}
        done(await kube.create(LEASES, fresh, place.namespace))
        clock.passed = DURATION
        assert await kube.get(LEASES, "fresh", place.namespace) is not None  # looking is always allowed
        with pytest.raises(KubeUnavailable, match=r"not sent: the lease .*/leader was lost") as failure:
            await kube.create(LEASES, {"metadata": {"name": "late"}}, place.namespace)
        told.append(str(failure.value))

    # So long until it looks at its lease again: what it finds then would stop the body.
    times = TIMES | {"retry": 5.0}
    await run_as_leader(
        client, name="leader", namespace=place.namespace, identity="one", body=body, clock=clock, **times
    )
    assert len(told) == 1
    assert await client.get(LEASES, "late", place.namespace) is None


async def test_a_stolen_lease_stops_the_body(client: Client, place: Place) -> None:
    candidate = Candidate(client, place, "one")
    async with candidate.standing():
        await candidate.leads()
        theft = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}
        stolen = await client.patch(LEASES, "leader", theft, kind=PatchKind.MERGE, namespace=place.namespace)
        assert isinstance(stolen, Done)
        await eventually(lambda: _has(candidate, "lost: taken by thief"))
        assert candidate.story == ["taken", "begins", "ends", "lost: taken by thief"]
    assert (await lease_of(place)).spec.holder_identity == "thief"


async def test_a_deleted_lease_stops_the_body_and_is_won_anew(client: Client, place: Place) -> None:
    candidate = Candidate(client, place, "one")
    async with candidate.standing():
        await candidate.leads()
        done(await client.delete(LEASES, "leader", place.namespace))
        await eventually(lambda: _has(candidate, "lost: the lease was deleted"))
        await candidate.leads()
    assert candidate.story[:4] == ["taken", "begins", "ends", "lost: the lease was deleted"]
    assert candidate.story[4:6] == ["taken", "begins"]


async def test_a_label_on_the_lease_does_not_cost_the_leadership(client: Client, place: Place) -> None:
    candidate = Candidate(client, place, "one")
    async with candidate.standing():
        await candidate.leads()
        label = {"metadata": {"labels": {"seen": "yes"}}}
        labelled = done(await client.patch(LEASES, "leader", label, kind=PatchKind.MERGE, namespace=place.namespace))

        async def renewed() -> bool:
            return (await lease_of(place)).metadata.resource_version != labelled.metadata.resource_version

        await eventually(renewed)
        assert (await lease_of(place)).metadata.labels == {"seen": "yes"}
        assert candidate.story == ["taken", "begins"]


async def test_a_former_self_is_succeeded_at_once(client: Client, place: Place) -> None:
    """A process that was killed and comes back under its name does not wait for its own lease to expire."""
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 3600}
    await place.create(LEASES, {"metadata": {"name": "leader"}, "spec": spec})
    candidate = Candidate(client, place, "one")
    async with candidate.standing():
        await candidate.leads()


async def test_a_dead_holder_is_succeeded_when_its_lease_has_not_changed_for_its_duration(
    client: Client, place: Place
) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1}
    await place.create(LEASES, {"metadata": {"name": "leader"}, "spec": spec})
    candidate = Candidate(client, place, "one")
    async with candidate.standing():
        await candidate.leads()
    assert candidate.story[0] == "taken"


async def _has(candidate: Candidate, words: str) -> bool:
    return words in candidate.story
