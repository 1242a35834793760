"""An operator's order about one gate, as annotations on its virtual node: what it says and whether it holds. Pure.

The order lives in the cluster, so that everybody sees it and no restart forgets it. One that cannot be understood is no
order: a gate that moves on a guess would cost money, or keep work waiting.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from overspill_events.moments import stamp
from overspill_events.names import (
    GATE_ANNOTATION,
    GATE_BY_ANNOTATION,
    GATE_REASON_ANNOTATION,
    GATE_UNTIL_ANNOTATION,
)
from overspill_events.reasons import Verdict

ANNOTATIONS: Final = (GATE_ANNOTATION, GATE_UNTIL_ANNOTATION, GATE_BY_ANNOTATION, GATE_REASON_ANNOTATION)
_VERDICTS: Final = {"open": Verdict.OPEN, "closed": Verdict.CLOSED}


class Override(Struct, frozen=True, kw_only=True):
    """The order. `until` None: until it is taken back."""

    verdict: Verdict
    until: datetime | None = None
    by: str = ""
    reason: str = ""

    def holds(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.until is None or now < self.until

    def __str__(self) -> str:
        end = "until taken back" if self.until is None else f"until {stamp(self.until)}"
        who = f" by {self.by}" if self.by else ""
        return f"{self.verdict} {end}{who}" + (f": {self.reason}" if self.reason else "")


class Malformed(Struct, frozen=True):
    """Annotations that are no order. `problem` names the field, its value and what is accepted."""

    problem: str


def read_override(annotations: Mapping[str, str]) -> Override | Malformed | None:
    """The order on a node; None when there is none: the gate follows the marks."""
    if GATE_ANNOTATION not in annotations:
        if GATE_UNTIL_ANNOTATION in annotations:
            return Malformed(f"metadata.annotations[{GATE_ANNOTATION}]: is missing; accepted: open, closed")
        return None
    wish = annotations[GATE_ANNOTATION]
    verdict = _VERDICTS.get(wish)
    if verdict is None:
        return Malformed(f"metadata.annotations[{GATE_ANNOTATION}]: {wish!r}; accepted: open, closed")
    until = None
    if (text := annotations.get(GATE_UNTIL_ANNOTATION)) is not None:
        until = _moment(text)
        if until is None:
            accepted = "an RFC 3339 time with its zone, such as 2030-01-31T18:00:00Z"
            return Malformed(f"metadata.annotations[{GATE_UNTIL_ANNOTATION}]: {text!r}; accepted: {accepted}")
    return Override(
        verdict=verdict,
        until=until,
        by=annotations.get(GATE_BY_ANNOTATION, ""),
        reason=annotations.get(GATE_REASON_ANNOTATION, ""),
    )


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
