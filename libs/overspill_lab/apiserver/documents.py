"""Kubernetes objects as the lab handles them: plain JSON dicts, and the bytes they are served as.

This module must not know any particular kind. It normalises as decoding into Go structs and encoding again does
(`null` and empty `omitempty` members vanish), so that a client never sees a shape here that a real server would not
send.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

JsonObject = dict[str, Any]

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

# Members that are Go maps with `omitempty`: an empty one is not served. Structs and pointers (`emptyDir: {}`,
# `selector: {}`) mean something when empty and stay.
_EMPTY_MAPS_VANISH = frozenset(
    {
        "labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "capacity", "allocatable",
        "data", "binaryData", "stringData", "hard", "used", "disruptedPods", "overhead",
    }
)  # fmt: skip


def normalise(value: Any, *, keep_empty: bool = False) -> Any:
    """Return `value` without nulls and, unless `keep_empty` (custom resources), without empty `omitempty` members."""
    if isinstance(value, dict):
        result = {}
        for key, member in value.items():
            if member is None:
                continue
            if isinstance(member, dict):
                member = normalise(member, keep_empty=keep_empty)  # noqa: PLW2901
                if not member and not keep_empty and key in _EMPTY_MAPS_VANISH:
                    continue
            elif isinstance(member, list):
                if not member and not keep_empty:
                    continue
                member = [normalise(item, keep_empty=keep_empty) for item in member]  # noqa: PLW2901
            result[key] = member
        return result
    if isinstance(value, list):
        return [normalise(item, keep_empty=keep_empty) for item in value]
    return value


def timestamp(moment: datetime) -> str:
    """Format a moment as `metav1.Time` does: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Read an RFC 3339 moment (seconds or finer); raises ValueError."""
    return datetime.fromisoformat(text)


def utc_now() -> datetime:
    """Return the wall clock, the only clock an API server may stamp objects with."""
    return datetime.now(UTC)


def member(obj: JsonObject, *path: str) -> Any:
    """Follow `path` through nested dicts; None where it breaks off."""
    value: Any = obj
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
