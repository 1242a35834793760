"""Numbers for the stream's events that go on rising when the stream is made anew and counts from 1 again.

The fold tells newer from older by these numbers alone. Pure; it must not know what the events say.
"""


class Numbering:
    """The stream's own numbers, until it is made anew; from then on beyond every number that was given before."""

    def __init__(self) -> None:
        self._base = 0
        self._heard = 0
        self._highest = 0

    def heard(self, sequence: int) -> int:
        """The number of an event that following hands over: it rises with every one, unless the stream is another."""
        if sequence <= self._heard:
            self._base = self._highest
        self._heard = sequence
        return self.of(sequence)

    def of(self, sequence: int) -> int:
        """The number of an event of the stream that is being followed."""
        number = self._base + sequence
        self._highest = max(self._highest, number)
        return number
