"""Conditions in a status that is plain data."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from overspill_lab.stamps import stamp


def holds(status: Mapping[str, Any], kind: str) -> bool:
    """Whether the condition of that type is there and "True"."""
    return any(one["type"] == kind and one["status"] == "True" for one in status.get("conditions") or ())


def with_condition(
    status: dict[str, Any], kind: str, reason: str, message: str, *, now: datetime, is_true: bool = True
) -> dict[str, Any]:
    """The status with this condition; one that is there and says the same keeps its times."""
    value = "True" if is_true else "False"
    conditions = list(status.get("conditions") or ())
    same = [one for one in conditions if one["type"] == kind]
    if same and same[0]["status"] == value:
        return status
    condition = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastProbeTime": stamp(now),
        "lastTransitionTime": stamp(now),
    }
    return {**status, "conditions": [*(one for one in conditions if one["type"] != kind), condition]}
