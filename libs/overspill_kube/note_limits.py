"""How often notes for people may be written: a loop repeats them, and they must never be what overloads an API server.

The same note about the same object once in ten minutes, and all together at a limited rate. Pure apart from its memory.
"""

from collections import OrderedDict
from typing import Final

REPEAT_SECONDS: Final = 600.0
BURST: Final = 50
PER_SECOND: Final = 2.0


class NoteLimits:
    """Which notes may be written now: `burst` at once, `per_second` after; times are a monotonic clock's seconds."""

    def __init__(self, *, burst: int = BURST, per_second: float = PER_SECOND) -> None:
        self._burst, self._per_second = float(burst), per_second
        self._written: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._tokens = self._burst
        self._filled_at = 0.0

    def __len__(self) -> int:
        """How many notes are remembered: at most what the rate allows in the repeat time."""
        return len(self._written)

    def allow(self, key: tuple[str, str, str], now: float) -> bool:
        """Whether this note may be written, which is then counted."""
        while self._written and now - next(iter(self._written.values())) >= REPEAT_SECONDS:
            self._written.popitem(last=False)
        if key in self._written:
            return False
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        self._written[key] = now
        return True
