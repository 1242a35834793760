"""A process from outside: signals, exit codes, endpoints."""

import asyncio
import json
import signal
import sys
import textwrap

import aiohttp

PROGRAM = textwrap.dedent(
    """
    import asyncio, contextlib, logging, sys
    from overspill_runtime import process as runtime
    from overspill_runtime.process import start
    from overspill_runtime.settings import CommonSettings

    async def main(process):
        process.health.check("bus", lambda: None)
        if sys.argv[1] == "crash":
            raise RuntimeError("as asked")
        if sys.argv[1] == "end":
            return
        logging.getLogger("somebody").info("not of interest")
        logging.getLogger("somebody").warning("of %s", "interest")
        logging.getLogger("overspill_bus").info("ours")
        process.log.info("ready")
        if sys.argv[1] == "deaf":
            runtime.STOP_AGAIN_SECONDS = 0.2
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
            await asyncio.sleep(1000)
        try:
            await process.stopping.wait()
        finally:
            await asyncio.sleep(0.05)
            process.log.info("cleaned-up", ready=process.health.ready())

    sys.exit(start(main, CommonSettings, service="cook"))
    """
)


async def program(how: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, how, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def line_with(stream: asyncio.StreamReader, event: str) -> dict:
    async with asyncio.timeout(30):
        while line := await stream.readline():
            entry = json.loads(line)
            if entry["event"] == event:
                return entry
    raise AssertionError(f"no line {event!r}")


async def test_sigterm_stops_gracefully_with_exit_code_0():
    child = await program("wait")
    await line_with(child.stderr, "ready")
    child.send_signal(signal.SIGTERM)
    entry = await line_with(child.stderr, "cleaned-up")
    assert entry["ready"]["stopping"] == "is stopping"
    assert (entry["service"], entry["level"]) == ("cook", "info")
    assert await child.wait() == 0


async def test_what_libraries_say_is_a_record_of_the_service_too():
    """Of others from warnings upwards, of ours at the service's own level; never a line that is no JSON."""
    child = await program("wait")
    first = json.loads(await child.stderr.readline())
    assert first["event"] == "listening"
    heard = [json.loads(await child.stderr.readline()) for _ in range(2)]
    assert [(one["level"], one["event"], one["logger"], one["service"]) for one in heard] == [
        ("warning", "of interest", "somebody", "cook"),
        ("info", "ours", "overspill_bus", "cook"),
    ]
    assert all(one["timestamp"] for one in heard)
    child.terminate()
    await child.communicate()


async def test_a_cancellation_that_got_lost_is_repeated():
    """The body, or somebody's code in it, swallowed the first one."""
    child = await program("deaf")
    await line_with(child.stderr, "ready")
    child.send_signal(signal.SIGTERM)
    await line_with(child.stderr, "stopping-again")
    assert await child.wait() == 0


async def test_a_failing_body_exits_1_with_its_traceback_in_the_log():
    child = await program("crash")
    entry = await line_with(child.stderr, "failed")
    assert "as asked" in entry["exception"]
    assert await child.wait() == 1


async def test_a_body_that_ends_exits_0():
    child = await program("end")
    await child.communicate()
    assert child.returncode == 0


async def test_bad_settings_exit_2_with_one_clear_line_and_no_traceback():
    child = await program("end", OVERSPILL_MODE="perhaps")
    _, err = await child.communicate()
    assert child.returncode == 2
    assert err.decode().splitlines() == [
        "overspill cook: OVERSPILL_MODE: 'perhaps' is not accepted: invalid enum value 'perhaps'; accepted: act | observe"
    ]


async def test_an_address_in_use_is_named():
    first = await program("wait")
    url = (await line_with(first.stderr, "listening"))["url"]
    second = await program("wait", OVERSPILL_LISTEN=url.removeprefix("http://"))
    entry = await line_with(second.stderr, "cannot-listen")
    assert entry["setting"] == "OVERSPILL_LISTEN"
    assert await second.wait() == 1
    first.terminate()
    await first.communicate()


async def test_endpoints_answer_with_every_check():
    child = await program("wait")
    url = (await line_with(child.stderr, "listening"))["url"]
    await line_with(child.stderr, "ready")
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/livez") as answer:
            assert (answer.status, (await answer.json())["checks"]) == (
                200,
                {"loop": "ok", "heartbeat": "ok", "main": "ok"},
            )
        async with http.get(f"{url}/readyz") as answer:
            assert (answer.status, (await answer.json())["checks"]["bus"]) == (200, "ok")
        async with http.get(f"{url}/metrics") as answer:
            text = await answer.text()
    assert 'overspill_build_info{service="cook",version=' in text
    assert "overspill_loop_lag_seconds" in text
    child.terminate()
    await child.communicate()
    assert child.returncode == 0
