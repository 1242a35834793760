"""The events of a process on their way to the stream: one order, one sequence of numbers.

A number is given when an event is sent and counts only when the stream has stored it, so that an event that was
withdrawn or that somebody else had stored leaves no gap, while an event that is lost leaves one that everybody can see.
This module is plain bookkeeping: no tasks, no clock, no NATS.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from msgspec import Struct

from overspill_events import Envelope


class Published(Struct, frozen=True, kw_only=True):
    """What became of an event. `sequence` is the stream's; `duplicate`: an event with this id was there already."""

    sequence: int
    duplicate: bool
    envelope: Envelope


@dataclass(slots=True, eq=False)
class Letter:
    """One event on its way. `envelope.sequence` is 0 until it is known to be stored."""

    envelope: Envelope
    data: bytes
    must_ack: bool = False
    done: asyncio.Future[Published] | None = None  # somebody waits for it
    attempts: int = 0
    in_flight: bool = False
    uncertain: bool = False  # an attempt may have reached the stream
    first_sent: float | None = field(default=None)  # monotonic seconds


class Outbox:
    """Letters in order, the first of which may be on its way."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[Letter] = deque()
        self._current: Letter | None = None
        self._last_number = 0
        self._missing = 0  # lost since the last number was given
        self._missing_before_current = 0
        self.lost = 0

    def __len__(self) -> int:
        return len(self._waiting) + (self._current is not None)

    @property
    def number(self) -> int:
        """The number of the letter that was taken."""
        return self._last_number + 1 + self._missing_before_current

    def put(self, letter: Letter) -> Letter | None:
        """Append; when full, the oldest waiting letter is dropped and returned; it leaves a gap unless `must_ack`."""
        self._waiting.append(letter)
        if len(self) <= self._capacity or len(self._waiting) == 1:
            return None
        dropped = self._waiting.popleft()
        if not dropped.must_ack:
            self.lost += 1
            self._missing += 1
        return dropped

    def take(self) -> Letter | None:
        """The letter to send now: the one already taken, or the next."""
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._missing_before_current, self._missing = self._missing, 0
        return self._current

    def withdraw(self, letter: Letter) -> bool:
        """Take a letter out unless it may have reached the stream; False: too late."""
        if letter is self._current:
            if letter.in_flight or letter.uncertain:
                return False
            self._give_back()
            return True
        if letter in self._waiting:
            self._waiting.remove(letter)
            return True
        return False

    def stored(self) -> None:
        """The stream has the letter under its number."""
        self._last_number = self.number
        self._missing_before_current = 0
        self._current = None

    def not_needed(self) -> None:
        """The letter did not use its number: the stream had its id already, or its caller was told of the refusal."""
        self._give_back()

    def refused(self) -> None:
        """The letter will never be stored and nobody waits for it: it is lost, and its number with it."""
        self.lost += 1
        self._give_back()
        self._missing += 1

    def _give_back(self) -> None:
        self._current = None
        self._missing += self._missing_before_current
        self._missing_before_current = 0
