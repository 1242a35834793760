"""The recorder's shell: from the stream's durable consumer into the ledger, acknowledged after the commit.

The ledger says itself how far it reaches. What it lacks and the consumer will not bring again (a deleted file, a
restored copy) is read from the stream first.
"""

from collections.abc import Sequence
from typing import Final

import aiosqlite

from overspill_bus.errors import BusUnavailable, RetryLater
from overspill_bus.recorded import Recorded
from overspill_events.subjects import STREAM_SUBJECTS
from overspill_recorder.metrics import RecorderMetrics
from overspill_recorder.settings import Settings
from overspill_recorder.writer import LedgerWriter, open_for_writing
from overspill_service import BusContext, metrics_of

SERVICE: Final = "recorder"
RETRY_SECONDS: Final = 1.0


async def run(context: BusContext[Settings]) -> None:
    """The body of the service. Raises LedgerError for a file that is no ledger of this version."""
    settings = context.settings
    async with open_for_writing(settings.file) as ledger:
        recorder = Recorder(context, ledger)
        context.health.check("ledger", lambda: recorder.problem)
        await recorder.catch_up()
        await context.bus.consume_batches(settings.durable, [STREAM_SUBJECTS], recorder.write, batch=settings.batch)


class Recorder:
    """Writes what it is handed; `problem` says why it cannot."""

    def __init__(self, context: BusContext[Settings], ledger: LedgerWriter) -> None:
        self._context = context
        self._ledger = ledger
        self._metrics = metrics_of(context.registry, RecorderMetrics)
        self.problem: str | None = "not caught up with the stream yet"

    async def catch_up(self) -> None:
        """Read what the ledger lacks, from its youngest event to the stream's present end."""
        while True:
            try:
                await self._context.bus.wait_connected()
                await self._read_on()
            except (BusUnavailable, RetryLater) as error:
                self._context.log.warning("cannot-catch-up", error=str(error))
                await self._context.clock.sleep(RETRY_SECONDS)
            else:
                self.problem = None
                return

    async def write(self, batch: Sequence[Recorded]) -> None:
        """One transaction. Raises RetryLater while the file cannot be written (full, locked)."""
        try:
            with self._metrics.write_seconds.time():
                written = await self._ledger.append(batch)
        except aiosqlite.OperationalError as error:
            self.problem = f"cannot write {self._context.settings.path}: {error}"
            self._context.log.warning("cannot-write", path=self._context.settings.path, error=str(error))
            raise RetryLater(RETRY_SECONDS, str(error)) from error
        self.problem = None
        self._metrics.stored.inc(written.stored)
        self._metrics.repeated.inc(written.repeated)
        self._metrics.unreadable.inc(sum(1 for recorded in batch if recorded.error is not None))
        self._metrics.missing.set(written.missing)
        self._metrics.reached.set(batch[-1].envelope.stream_sequence or 0)

    async def _read_on(self) -> None:
        reach = await self._ledger.reach()
        pending: list[Recorded] = []
        async for recorded in self._context.bus.read([STREAM_SUBJECTS], since=reach.stream_sequence + 1):
            pending.append(recorded)
            if len(pending) >= self._context.settings.batch:
                await self.write(pending)
                pending = []
        if pending:
            await self.write(pending)
        self._context.log.info("caught-up", since=reach.stream_sequence)
