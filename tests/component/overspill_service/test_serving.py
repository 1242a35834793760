"""A service's life: what it says, when it leads, and how it starts and ends with its neighbours away."""

import asyncio
import contextlib
import os
import signal
import sys
import textwrap

import aiohttp
import pytest

from overspill_events.catalog import LeadershipLost, LeadershipTaken, ServiceStarted, ServiceStopped
from overspill_kube.effects import record_event
from overspill_kube.errors import KubeUnavailable
from overspill_kube.resources import EVENTS, NODES, PODS
from overspill_objects.meta import ObjectReference
from overspill_runtime.process import process
from overspill_runtime.settings import CommonSettings, load
from overspill_service import serve
from tests.support.house import eventually, house, running

OURS = (ServiceStarted, ServiceStopped, LeadershipTaken, LeadershipLost)


@pytest.fixture
async def home(tmp_path):
    async with house(tmp_path) as home:
        yield home


def settings(home, **env):
    return load(CommonSettings, service="cook", env=home.env(**env))


async def said(home):
    return [type(one.event).__name__ for one in await home.events(*OURS)]


async def idle(context):
    await asyncio.Event().wait()


async def test_it_says_that_it_starts_leads_and_stops(home):
    async with running(serve("cook", settings(home, OVERSPILL_IDENTITY="me"), idle, lease="overspill-cook")):

        async def leads():
            return "LeadershipTaken" in await said(home)

        await eventually(leads)
    events = [one.event for one in await home.events(*OURS)]
    assert [type(one) for one in events] == [ServiceStarted, LeadershipTaken, LeadershipLost, ServiceStopped]
    assert (events[0].service, events[0].mode, events[0].settings["cluster"]) == ("cook", "act", "test")
    assert (events[1].lease, events[1].holder) == ("overspill-cook", "me")
    assert events[3].reason == "cancelled"


async def test_only_one_leads_and_the_other_takes_over(home):
    bodies = []

    def cook(name):
        async def body(context):
            bodies.append(name)
            await asyncio.Event().wait()

        return serve("cook", settings(home, OVERSPILL_IDENTITY=name), body, lease="overspill-cook")

    async def led_by(*names):
        return bodies == list(names)

    async with contextlib.AsyncExitStack() as stack:
        async with running(cook("first")):
            await eventually(lambda: led_by("first"))
            await stack.enter_async_context(running(cook("second")))
            await asyncio.sleep(1)
            assert bodies == ["first"]
        await eventually(lambda: led_by("first", "second"))


async def test_a_body_that_fails_is_told_and_raised(home):
    async def fails(context):
        raise RuntimeError("burnt")

    with pytest.raises(RuntimeError, match="burnt"):
        await serve("cook", settings(home), fails, lease="overspill-cook")
    events = [one.event for one in await home.events(*OURS)]
    assert [type(one) for one in events] == [ServiceStarted, LeadershipTaken, LeadershipLost, ServiceStopped]
    assert "burnt" in events[-1].reason


async def test_a_body_that_ends_ends_the_service(home):
    async def ends(context):
        return

    await serve("cook", settings(home), ends)
    assert (await home.events(ServiceStopped))[0].event.reason == "ended"


@pytest.mark.parametrize("lease", [None, "overspill-cook"])
async def test_an_observing_body_reads_and_can_write_nothing(home, lease):
    """Whatever it forgets to check; its lease is its process', not its own, and is held all the while."""
    pod = {"metadata": {"name": "dish"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    seen = []

    async def body(context):
        about = ObjectReference(api_version="v1", kind="Node", name="stove", uid="u")
        noted = await record_event(context.kube, about, reason="Hot", message="careful", component="cook")
        with pytest.raises(KubeUnavailable, match="OVERSPILL_MODE=observe"):
            await context.kube.create(PODS, pod, "default")
        seen.append((noted, len((await context.kube.list(NODES)).items)))

    await home.node("stove", 0)
    await serve("cook", settings(home, OVERSPILL_MODE="observe"), body, lease=lease)
    assert seen == [(False, 1)]
    assert (await home.kube.list(PODS)).items == ()
    assert (await home.kube.list(EVENTS)).items == ()
    assert ("LeadershipTaken" in await said(home)) is (lease is not None)


async def test_with_the_bus_away_the_body_runs_and_its_words_arrive_later(home):
    os.kill(home.nats.pid, signal.SIGKILL)
    began = asyncio.Event()

    async def body(context):
        began.set()
        await asyncio.Event().wait()

    async with running(serve("cook", settings(home), body)):
        async with asyncio.timeout(20):
            await began.wait()
        await home.nats.restart()

        async def started():
            return "ServiceStarted" in await said(home)

        await eventually(started)


async def test_readiness_and_metrics_tell_of_bus_and_leadership(home):
    async with process(settings(home), service="cook") as own, aiohttp.ClientSession() as http:

        async def ready():
            async with http.get(f"{own.url}/readyz") as answer:
                return await answer.json()

        async def is_ready():
            return (await ready())["ok"]

        async def metrics():
            async with http.get(f"{own.url}/metrics") as answer:
                return await answer.text()

        async def leads():
            return 'overspill_leader{lease="overspill-cook"} 1.0' in await metrics()

        async with running(serve("cook", own.settings, idle, lease="overspill-cook", process=own)):
            await eventually(is_ready)
            await eventually(leads)
            text = await metrics()
            assert "overspill_nats_connected 1.0" in text
            assert 'overspill_kube_request_seconds_count{code="201",verb="POST"}' in text
            os.kill(home.nats.pid, signal.SIGKILL)

            async def not_ready():
                return "not connected" in (await ready())["checks"]["bus"]

            await eventually(not_ready)
            await home.nats.restart()


async def test_as_a_program_it_stops_on_sigterm_and_says_so(home):
    program = textwrap.dedent(
        """
        import asyncio
        from overspill_runtime.settings import CommonSettings
        from overspill_service import main

        async def body(context):
            await asyncio.Event().wait()

        main("cook", CommonSettings, body, lease="overspill-cook")
        """
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env={**os.environ, **home.env()}, stderr=asyncio.subprocess.PIPE
    )

    async def leads():
        return "LeadershipTaken" in await said(home)

    await eventually(leads)
    child.terminate()
    await child.communicate()
    assert child.returncode == 0
    assert await said(home) == ["ServiceStarted", "LeadershipTaken", "LeadershipLost", "ServiceStopped"]
    assert (await home.events(ServiceStopped))[0].event.reason == "signal"


async def test_with_the_api_server_away_it_lives_and_readiness_says_what_is_out_of_reach(home, tmp_path):
    nobody = tmp_path / "nobody"
    nobody.write_text(
        textwrap.dedent(
            """
            apiVersion: v1
            kind: Config
            clusters: [{name: nobody, cluster: {server: "http://127.0.0.1:1"}}]
            users: [{name: nobody, user: {token: nothing}}]
            contexts: [{name: nobody, context: {cluster: nobody, user: nobody}}]
            current-context: nobody
            """
        )
    )
    own_settings = settings(home, OVERSPILL_KUBECONFIG=str(nobody))
    async with process(own_settings, service="cook") as own, aiohttp.ClientSession() as http:

        async def says():
            async with http.get(f"{own.url}/readyz") as answer:
                return "127.0.0.1:1" in ((await answer.json())["checks"].get("lease") or "")

        async with running(serve("cook", own.settings, idle, lease="overspill-cook", process=own)):
            await eventually(says)
            async with http.get(f"{own.url}/livez") as answer:
                assert answer.status == 200
