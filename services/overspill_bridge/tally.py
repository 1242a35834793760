"""A running count of the GPUs that sightings and flights hold: each create costs the same, however many there are.

What only time can tell (an instance that lists have begun to lack) is kept apart and asked anew each time; there are
never many. It must not know what becomes of anything: the book tells it what is added and what is taken away. Pure.
"""

from overspill_bridge.sighting import Flight, Sighting

Key = tuple[str, str, str]  # pod UID, provider, instance id


class Tally:
    """GPUs in use."""

    def __init__(self) -> None:
        self._sure = 0
        self._doubtful: dict[Key, Sighting] = {}

    def add(self, counted: Sighting | Flight) -> None:
        """From here on it counts."""
        self._count(counted, 1)

    def remove(self, counted: Sighting | Flight | None) -> None:
        """It counts no more, exactly as it was added; None: there was nothing to count."""
        if counted is not None:
            self._count(counted, -1)

    def gpus(self, *, now: float, list_lag: float) -> int:
        """The sum of all that may hold GPUs now."""
        living = (one for one in self._doubtful.values() if one.is_living(now=now, list_lag=list_lag))
        return self._sure + sum(one.instance.gpus for one in living)

    def _count(self, counted: Sighting | Flight, sign: int) -> None:
        if isinstance(counted, Flight):
            self._sure += sign * counted.gpus
        elif counted.misses == 0:  # no list has lacked it, so its state alone decides, whatever the time
            self._sure += sign * counted.instance.gpus * counted.instance.is_living
        elif sign > 0:
            self._doubtful[_key(counted)] = counted
        else:
            self._doubtful.pop(_key(counted), None)


def _key(sighting: Sighting) -> Key:
    return sighting.pod_uid, sighting.provider, sighting.instance.id
