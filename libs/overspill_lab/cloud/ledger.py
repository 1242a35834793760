"""What the cloud knows: offerings and every instance that ever was, with stock, bill and audit derived from them.

The audit is for a judge outside: it reports two living instances for one pod as intervals, not as a verdict. This
module must not know HTTP.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from overspill_events.catalog import Offering
from overspill_events.names import CLUSTER_TAG, POD_UID_TAG
from overspill_lab.cloud.life import EXIT_CODE_ENV, RUN_SECONDS_ENV, Life, Outcome, Timings
from overspill_providers.protocol import InstanceState


class Refused(Exception):  # noqa: N818 -- an answer, not a failure of the cloud
    """The cloud says no: HTTP status, machine code, text for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Ask(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a create."""

    name: str
    offering: str
    image: str
    tags: dict[str, str] = {}
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    ports: tuple[int, ...] = ()


class Record(Struct, frozen=True, kw_only=True):
    """One instance: what was asked, what is paid, how it lives."""

    id: str
    number: int
    ask: Ask
    offering: Offering
    life: Life


class Ledger:
    """All state of the cloud. `clock` gives seconds since the epoch and never goes back."""

    def __init__(
        self, *, offerings: tuple[Offering, ...], timings: Timings, hours_per_second: float, clock: Callable[[], float]
    ) -> None:
        self._offerings = {offering.id: offering for offering in offerings}
        self._timings = timings
        self._hours_per_second = hours_per_second
        self._clock = clock
        self._records: dict[str, Record] = {}

    def create(self, ask: Ask) -> Record:
        """A new instance, always: names are not unique. Raises Refused (unknown offering, bad value, no stock)."""
        offering = self._offerings.get(ask.offering)
        if offering is None:
            raise Refused(400, "invalid", f"offering: {ask.offering!r} is not sold; sold: {sorted(self._offerings)}")
        if not ask.image:
            raise Refused(422, "image", "image: must not be empty")
        now = self._clock()
        if self._left(offering, now) == 0:
            raise Refused(409, "no-capacity", f"offering {offering.id} is sold out")
        number = len(self._records) + 1
        life = Life(
            created_at=now,
            timings=self._timings,
            run_seconds=_number(ask.env, RUN_SECONDS_ENV),
            exit_code=int(_number(ask.env, EXIT_CODE_ENV) or 0),
        )
        record = Record(id=f"i-{number:06d}", number=number, ask=ask, offering=offering, life=life)
        self._records[record.id] = record
        return record

    def terminate(self, instance_id: str) -> None:
        """Idempotent for an instance that was ever there; Refused 404 for one that never was."""
        self.find(instance_id).life.request_stop(self._clock())

    def end_by_provider(self, instance_id: str, *, state: InstanceState, exit_code: int | None, message: str) -> None:
        """Preempt, fail, exit or lose an instance from the provider's side."""
        outcome = Outcome(state=state, at=self._clock(), exit_code=exit_code, message=message)
        self.find(instance_id).life.end_by_provider(outcome)

    def find(self, instance_id: str) -> Record:
        record = self._records.get(instance_id)
        if record is None:
            raise Refused(404, "not-found", f"instance {instance_id!r} does not exist")
        return record

    def page(self, *, after: int, limit: int) -> tuple[list[Record], int | None]:
        """Up to `limit` instances that are not gone, numbered above `after`, and where the next page begins."""
        now = self._clock()
        left = [
            record
            for record in self._records.values()
            if record.number > after and record.life.state(now) is not InstanceState.GONE
        ]
        return left[:limit], left[limit - 1].number if len(left) > limit else None

    def offerings(self) -> list[Offering]:
        """What is sold, with the stock that is left."""
        now = self._clock()
        return [
            Offering(
                id=o.id,
                gpu_type=o.gpu_type,
                gpus=o.gpus,
                region=o.region,
                price_per_hour=o.price_per_hour,
                stock=self._left(o, now),
                spot=o.spot,
            )
            for o in self._offerings.values()
        ]

    def show(self, record: Record) -> dict[str, Any]:
        """One instance as customers see it."""
        now = self._clock()
        end = record.life.end(now)
        return {
            "id": record.id,
            "name": record.ask.name,
            "state": record.life.state(now).value,
            "offering": record.offering.id,
            "gpus": record.offering.gpus,
            "pricePerHour": record.offering.price_per_hour,
            "tags": record.ask.tags,
            "createdAt": _time(record.life.created_at),
            "runningAt": _time(record.life.running_at(now)),
            "exitCode": None if end is None else end.exit_code,
            "message": "" if end is None else end.message,
            "billedHours": self._hours(record, now),
        }

    def bill(self) -> dict[str, Any]:
        """Hours and dollars per instance, from its creation to its end, and their totals."""
        now = self._clock()
        lines: list[dict[str, Any]] = [
            {
                "id": record.id,
                "name": record.ask.name,
                "tags": record.ask.tags,
                "offering": record.offering.id,
                "gpus": record.offering.gpus,
                "pricePerHour": record.offering.price_per_hour,
                "start": _time(record.life.created_at),
                "end": _time(record.life.ended_at(now)),
                "hours": self._hours(record, now),
                "cost": self._hours(record, now) * record.offering.price_per_hour,
            }
            for record in self._records.values()
        ]
        totals = {
            "instances": len(lines),
            "living": sum(line["end"] is None for line in lines),
            "hours": sum(line["hours"] for line in lines),
            "gpuHours": sum(line["hours"] * line["gpus"] for line in lines),
            "cost": sum(line["cost"] for line in lines),
        }
        return {"instances": lines, "totals": totals}

    def audit(self) -> dict[str, Any]:
        """Every instance ever with its whole life, and every overlap of two living ones for one pod."""
        now = self._clock()
        instances = [
            self.show(record)
            | {
                "podUid": record.ask.tags.get(POD_UID_TAG),
                "stopRequestedAt": _time(record.life.stop_requested_at),
                "endedAt": _time(record.life.ended_at(now)),
                "living": record.life.ended_at(now) is None,
            }
            for record in self._records.values()
        ]
        return {"now": _time(now), "instances": instances, "overlaps": self._overlaps(now)}

    def _overlaps(self, now: float) -> list[dict[str, Any]]:
        by_pod: dict[tuple[str, str], list[Record]] = {}
        for record in self._records.values():
            if uid := record.ask.tags.get(POD_UID_TAG):
                by_pod.setdefault((record.ask.tags.get(CLUSTER_TAG, ""), uid), []).append(record)
        return [
            overlap
            for (_, uid), records in by_pod.items()
            for index, first in enumerate(records)
            for second in records[index + 1 :]
            if (overlap := _overlap(uid, first, second, now)) is not None
        ]

    def _left(self, offering: Offering, now: float) -> int | None:
        if offering.stock is None:
            return None
        taken = sum(
            record.offering.id == offering.id and record.life.ended_at(now) is None for record in self._records.values()
        )
        return max(0, offering.stock - taken)

    def _hours(self, record: Record, now: float) -> float:
        end = record.life.ended_at(now)
        return ((now if end is None else end) - record.life.created_at) * self._hours_per_second


def _overlap(uid: str, first: Record, second: Record, now: float) -> dict[str, Any] | None:
    """The interval in which both hold GPUs; `to` is None while it lasts. Records come in order of creation."""
    start = max(first.life.created_at, second.life.created_at)
    ends = [end for record in (first, second) if (end := record.life.ended_at(now)) is not None]
    if ends and min(ends) <= start:
        return None
    end = min(ends) if ends else None
    return {
        "podUid": uid,
        "first": first.id,
        "second": second.id,
        "from": _time(start),
        "to": _time(end),
        "seconds": (now if end is None else end) - start,
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _number(env: dict[str, str], name: str) -> float | None:
    if name not in env:
        return None
    try:
        value = float(env[name])
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise Refused(422, "invalid", f"env.{name}: {env[name]!r} is not a number of at least 0")
    return value
