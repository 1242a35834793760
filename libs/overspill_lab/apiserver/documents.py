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

# Members that are Go maps of plain values with `omitempty`: an empty one is not served, what is in it is the client's.
# Structs and pointers (`emptyDir: {}`, `selector: {}`) mean something when empty and stay.
_PLAIN_MAPS = frozenset(
    {
        "labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "capacity", "allocatable",
        "data", "binaryData", "stringData", "hard", "used", "disruptedPods", "overhead",
    }
)  # fmt: skip
# Strings, counts and switches with `omitempty`: an empty text, a zero, a false is not served.
_EMPTY_TEXTS_VANISH = frozenset(
    {
        "reason", "message", "value", "effect", "nodeName", "priorityClassName", "podIP", "hostIP",
        "nominatedNodeName", "phase",
    }
)  # fmt: skip
_ZEROS_VANISH = frozenset(
    {
        "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas", "fullyLabeledReplicas",
        "active", "succeeded", "failed", "unschedulable", "hostNetwork", "hostPID", "hostIPC",
    }
)  # fmt: skip


def normalise(value: Any) -> Any:
    """Return a built-in kind's document as Go would encode it again: without nulls and empty `omitempty` members."""
    if isinstance(value, dict):
        return {key: normal for key, member in value.items() if (normal := _member(key, member)) is not None}
    if isinstance(value, list):
        return [normalise(item) for item in value]
    return value


def _member(key: str, value: Any) -> Any:
    """Return a member's normal form, None if it is not to be there."""
    if isinstance(value, dict):
        if key in _PLAIN_MAPS:
            return without_nulls(value) or None
        return normalise(value)
    if isinstance(value, list):
        return [normalise(item) for item in value] or None
    if (value == "" and key in _EMPTY_TEXTS_VANISH) or (value == 0 and key in _ZEROS_VANISH):
        return None
    return value


def without_nulls(value: Any) -> Any:
    """Return a document without nulls, otherwise as it is: all that is done to a custom resource."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
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
