"""The supervisor with real processes: readiness, restarts, ends, and that nothing is left behind."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from overspill_lab.programs import Answers, LabError, Listens, Program, Progress, State
from overspill_lab.supervisor import CRASHES_ALLOWED, Supervisor

DEADLINE_S = 30.0
ANNOUNCE = "import sys, time, os; print('{\"pid\": %d}' % os.getpid(), flush=True); "
FOREVER = ANNOUNCE + "time.sleep(1000)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + FOREVER


def python(name: str, code: str, **more: object) -> Program:
    return Program(name=name, command=(sys.executable, "-c", code), restart_after_s=0.05, **more)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended; only its parent has not looked yet.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 (other processes set no events)
            await asyncio.sleep(0.02)


class Seen(list[Progress]):
    def states(self, name: str) -> list[State]:
        return [one.state for one in self if one.name == name]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest_asyncio.fixture
async def supervisor(tmp_path: Path, seen: Seen) -> AsyncIterator[Supervisor]:
    async with Supervisor(tmp_path, progress=seen.append) as made:
        yield made


async def test_a_program_is_ready_when_it_says_so(supervisor: Supervisor, seen: Seen) -> None:
    announced = await supervisor.start(python("one", FOREVER))
    assert announced == {"pid": supervisor.pids["one"]}
    assert seen.states("one") == [State.STARTING, State.READY]


async def test_what_was_asked_for_last_stops_first(tmp_path: Path, seen: Seen) -> None:
    """Whichever of several that start together comes up first."""
    names = ["one", "two", "three", "four"]
    async with Supervisor(tmp_path, progress=seen.append) as supervisor:
        await asyncio.gather(*(supervisor.start(python(name, FOREVER)) for name in names))
    assert [one.name for one in seen if one.state is State.STOPPED] == names[::-1]


async def test_output_and_errors_go_to_the_log(supervisor: Supervisor) -> None:
    talk = FOREVER.replace("time.sleep", "print('said', flush=True); sys.stderr.write('complained\\n'); time.sleep")
    await supervisor.start(python("one", talk))
    await until(lambda: {"said", "complained"} <= set(supervisor.log_of("one").read_text().split()))


async def test_a_program_that_ends_first_is_an_error_with_the_end_of_its_log(supervisor: Supervisor) -> None:
    with pytest.raises(LabError, match=r"one did not become ready(.|\n)*no such thing"):
        await supervisor.start(python("one", "import sys; sys.exit('no such thing')"))


async def test_other_kinds_of_readiness(supervisor: Supervisor) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = f"import http.server as h; h.HTTPServer(('127.0.0.1', {port}), h.SimpleHTTPRequestHandler).serve_forever()"
    assert await supervisor.start(python("http", serve, readiness=Answers(url=f"http://127.0.0.1:{port}/"))) == {}
    # The port is open by now, so this one is ready at once whatever it does.
    assert await supervisor.start(python("tcp", FOREVER, readiness=Listens(port=port))) == {}


async def test_a_killed_program_comes_back_and_is_no_crash(supervisor: Supervisor, seen: Seen) -> None:
    await supervisor.start(python("one", FOREVER))
    first = supervisor.pids["one"]
    assert await supervisor.kill("one") == first
    await supervisor.ready("one")
    assert supervisor.pids["one"] != first
    assert not is_alive(first)
    assert supervisor.deaths == []
    assert seen.states("one") == [State.STARTING, State.READY, State.KILLED, State.STARTING, State.READY]


async def test_a_crash_is_remembered_with_the_end_of_the_log(supervisor: Supervisor, tmp_path: Path) -> None:
    flag = tmp_path / "crashed"
    once = f"import pathlib; f = pathlib.Path({str(flag)!r}); first = not f.exists(); f.touch(); "
    await supervisor.start(python("one", once + ANNOUNCE + "first and sys.exit('by itself'); time.sleep(1000)"))
    await until(lambda: supervisor.deaths)
    await supervisor.ready("one")
    (death,) = supervisor.deaths
    assert (death.name, death.exit_code) == ("one", 1)
    assert "by itself" in str(death)


async def test_what_cannot_be_lost_ends_the_lab(supervisor: Supervisor) -> None:
    await supervisor.start(python("keeper", ANNOUNCE + "time.sleep(0.2); sys.exit('all is lost')", restarts=False))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(LabError, match=r"keeper(.|\n)*all is lost"):
            await supervisor.failed()


async def test_a_program_that_only_crashes_ends_the_lab(supervisor: Supervisor) -> None:
    await supervisor.start(python("one", ANNOUNCE + "sys.exit('again')"))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(LabError, match="again"):
            await supervisor.failed()
    assert len(supervisor.deaths) == CRASHES_ALLOWED + 1


async def test_only_what_runs_can_be_killed(supervisor: Supervisor) -> None:
    await supervisor.start(python("one", FOREVER))
    with pytest.raises(LabError, match=r"'two'; there are: one"):
        await supervisor.kill("two")


async def test_stopping_ends_all_last_first_even_the_stubborn(tmp_path: Path, seen: Seen) -> None:
    async with Supervisor(tmp_path, progress=seen.append) as supervisor:
        await supervisor.start(python("first", FOREVER))
        await supervisor.start(python("second", STUBBORN, stop_within_s=0.2))
        pids = list(supervisor.pids.values())
    assert [one.name for one in seen if one.state is State.STOPPED] == ["second", "first"]
    assert not [pid for pid in pids if is_alive(pid)]


async def test_nothing_is_left_of_a_start_that_is_cancelled(tmp_path: Path, seen: Seen) -> None:
    pids: list[int] = []
    told = tmp_path / "pid"
    silent = f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); time.sleep(1000)"

    async def lab() -> None:
        async with Supervisor(tmp_path, progress=seen.append) as supervisor:
            await supervisor.start(python("ready", FOREVER))
            pids.extend(supervisor.pids.values())
            await supervisor.start(python("never", silent))

    running = asyncio.create_task(lab())
    await until(lambda: told.exists() and told.read_text())
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert [one.name for one in seen if one.state is State.STOPPED] == ["never", "ready"]
    assert not [pid for pid in (*pids, int(told.read_text())) if is_alive(pid)]


async def test_nothing_outlives_a_lab_that_is_killed(tmp_path: Path) -> None:
    lab = f"""
import asyncio, sys
from pathlib import Path
from overspill_lab.programs import Program
from overspill_lab.supervisor import Supervisor

async def main():
    async with Supervisor(Path({str(tmp_path)!r})) as supervisor:
        await supervisor.start(Program(name="child", command=(sys.executable, "-c", {FOREVER!r})))
        print(supervisor.pids["child"], flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", lab, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        child = int(await process.stdout.readline())
    assert is_alive(child)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    await until(lambda: not is_alive(child))
