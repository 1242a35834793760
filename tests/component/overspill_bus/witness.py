"""An outside view of the streams through a plain NATS client, and small waits with generous deadlines."""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass

import nats
from nats.js.errors import NotFoundError

from overspill_events import reasons
from overspill_events.catalog import GateDecided, GateOpened

DEADLINE = 30.0  # seconds; never the expected time


@dataclass(frozen=True)
class Stored:
    subject: str
    headers: dict[str, str]
    data: bytes
    sequence: int

    @property
    def number(self) -> int:
        return int(self.headers["ce-sequence"])

    @property
    def node(self) -> str:
        return self.headers["ce-subject"]


class Witness:
    """A connection of its own; `stored` reads a stream message by message."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self):
        self.client = await nats.connect(self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_quiet)
        self.js = self.client.jetstream()
        return self

    async def __aexit__(self, *_):
        await self.client.close()

    async def stored(self, stream: str = "EVENTS") -> list[Stored]:
        info = await self.js.stream_info(stream)
        found = []
        for sequence in range(info.state.first_seq, info.state.last_seq + 1):
            try:
                message = await self.js.get_msg(stream, sequence)
            except NotFoundError:
                continue
            found.append(Stored(message.subject, dict(message.headers or {}), message.data or b"", sequence))
        return found


async def _quiet(_error: Exception) -> None:
    """The witness lives through the outages that tests make."""


class LossyProxy:
    """Between a client and its server: frames to the client that `drop` names get lost, as in a full buffer."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._pumps: set[asyncio.Task] = set()
        self.drop = lambda _subject, _size: False
        self.dropped = 0

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._pumps.add(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump_up(reader, up_writer))
                both.create_task(self._pump_down(up_reader, writer))
        except* (OSError, asyncio.IncompleteReadError, EOFError):
            pass
        finally:
            for each in (writer, up_writer):
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _pump_up(self, reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        raise EOFError

    async def _pump_down(self, reader, writer):
        """Frame by frame: `HMSG <subject> <sid> [reply] <header bytes> <bytes>` and what follows it."""
        while line := await reader.readline():
            frame = line
            if line.startswith((b"MSG ", b"HMSG ")):
                size = int(line.split()[-1])
                frame += await reader.readexactly(size + 2)
                if self.drop(line.split()[1].decode(), size):
                    self.dropped += 1
                    continue
            writer.write(frame)
            await writer.drain()
        raise EOFError


def opened(node: str = "n") -> GateOpened:
    return GateOpened(node=node, reason=reasons.GateReason.HOME_FULL)


def decided(node: str, samples: int) -> GateDecided:
    return GateDecided(
        node=node,
        verdict=reasons.Verdict.OPEN,
        reason=reasons.GateReason.HOME_FULL,
        average=1.0,
        low_mark=1.0,
        high_mark=2.0,
        window_seconds=60.0,
        samples=samples,
    )


async def until(condition, what: str = "the condition") -> None:
    """Poll a plain function until it is true. Fails the test after a generous while."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110 (what is waited for has no event to wait on)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true in {DEADLINE} s") from None


@contextlib.contextmanager
def frozen(pid: int):
    """The process hears everything and answers nothing, as behind a broken network."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def cancelled(task: asyncio.Task) -> None:
    """Cancel and make sure that it ends so, not otherwise."""
    task.cancel()
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait({task})
    assert task.cancelled()
