"""The ledger's writer: each event once, all of a batch or nothing, gaps judged fairly."""

import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from overspill_bus import Recorded
from overspill_events import Envelope, encode
from overspill_events.catalog import PodEvicted, PodRef
from overspill_recorder.ledger import open_ledger
from overspill_recorder.writer import epoch_start, open_for_writing

START = datetime(2030, 1, 1, tzinfo=UTC)


def recorded(sequence: int, *, stream: int, source: str = "evictor", epoch_at: datetime = START) -> Recorded:
    event = PodEvicted(
        pod=PodRef(namespace="team", name=f"p-{sequence}", uid=f"u-{sequence}"), node="v", home_node="h", gpus=1
    )
    epoch = f"{int(epoch_at.timestamp() * 1000)}-abcd"
    envelope = Envelope(
        id=f"{source}-{epoch}-{sequence}", type=event.spec.type, source=source, subject="overspill.v1.x",
        time=START + timedelta(seconds=stream % 100_000), epoch=epoch, sequence=sequence, correlation_id="c", stream_sequence=stream,
    )  # fmt: skip
    return Recorded(envelope=envelope, event=event, data=encode(event), redelivered=0, stored_at=envelope.time)


async def missing(path: Path) -> dict[tuple[str, int], list[tuple[int, int]]]:
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    async with open_ledger(path) as ledger:
        for gap in await ledger.gaps():
            began = epoch_start(gap.epoch)
            assert began is not None
            found.setdefault((gap.source, int((began - START).total_seconds())), []).append((gap.first, gap.last))
    return found


async def test_repetition_inside_and_between_batches_changes_nothing(tmp_path: Path) -> None:
    """Idempotent by id."""
    path = tmp_path / "ledger.db"
    async with open_for_writing(path) as writer:
        written = await writer.append([recorded(1, stream=1), recorded(1, stream=1), recorded(2, stream=2)])
        assert (written.stored, written.repeated, written.missing) == (2, 1, 0)
        written = await writer.append([recorded(2, stream=2), recorded(3, stream=3)])
        assert (written.stored, written.repeated) == (1, 1)
        assert (await writer.reach()).stream_sequence == 3
    async with open_ledger(path) as ledger:
        assert [event.sequence for event in await ledger.events()] == [1, 2, 3]


async def test_a_younger_batch_before_an_older_one_is_no_loss(tmp_path: Path) -> None:
    """A crash leaves a batch unacknowledged; it comes again after younger ones."""
    path = tmp_path / "ledger.db"
    async with open_for_writing(path) as writer:
        await writer.append([recorded(1, stream=1)])
        assert (await writer.append([recorded(5, stream=5)])).missing == 3
        assert (await writer.append([recorded(3, stream=3)])).missing == 2
        assert (await writer.append([recorded(n, stream=n) for n in (2, 4)])).missing == 0
    assert await missing(path) == {}


async def test_what_left_the_stream_before_the_ledger_began_is_not_lost(tmp_path: Path) -> None:
    """A ledger that starts late: sources from before are judged from their first number on, later ones from 1."""
    path = tmp_path / "ledger.db"
    async with open_for_writing(path) as writer:
        await writer.append([recorded(70, stream=500), recorded(72, stream=502)])
        await writer.append([recorded(9, stream=503, source="bridge")])
        later = START + timedelta(seconds=600)
        await writer.append([recorded(3, stream=700, epoch_at=later)])
    assert await missing(path) == {("evictor", 0): [(71, 71)], ("evictor", 600): [(1, 2)]}


async def test_a_ledger_from_the_beginning_misses_every_head(tmp_path: Path) -> None:
    """Nothing had left the stream: a source that starts at 2 lost its first event."""
    path = tmp_path / "ledger.db"
    async with open_for_writing(path) as writer:
        await writer.append([recorded(1, stream=1), recorded(2, stream=2, source="bridge")])
    assert await missing(path) == {("bridge", 0): [(1, 1)]}


async def test_the_wildest_numbers_of_strangers_are_counted(tmp_path: Path) -> None:
    """Fifteen digits may stand in a header; ten thousand such sources are more than an integer sum can hold."""
    path, wildest = tmp_path / "ledger.db", 10**15 - 1
    async with open_for_writing(path) as writer:
        await writer.append([recorded(wildest, stream=1, source="stranger")])
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            for number in range(10_000):
                file.execute("INSERT INTO gaps SELECT source || ?, epoch, first, last FROM gaps LIMIT 1", (number,))
        written = await writer.append([recorded(1, stream=2)])
    assert written.stored == 1
    assert written.missing == pytest.approx(10_001 * (wildest - 1))


async def test_a_batch_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """All or nothing: the good half of a bad batch is not stored, and comes again."""
    path = tmp_path / "ledger.db"
    bad = recorded(2, stream=1 << 70)  # no SQLite integer
    async with open_for_writing(path) as writer:
        with pytest.raises(OverflowError):
            await writer.append([recorded(1, stream=1), bad])
        assert (await writer.append([recorded(1, stream=1)])).stored == 1
    async with open_ledger(path) as ledger:
        assert await ledger.count() == 1
        assert len(await ledger.for_pod("team", "p-1")) == 1


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        ("1893456000000-00ff", START),
        ("soon-00ff", None),
        ("1893456000000", None),
        ("", None),
        ("\u00b2-abcd", None),
        ("9" * 30 + "-abcd", None),
        ("1893456000000-other", None),
    ],
)
def test_epochs_tell_when_their_process_started(epoch: str, expected: datetime | None) -> None:
    """Another form than ours is unknown, not an error."""
    assert epoch_start(epoch) == expected
