"""The merge patch that turns one JSON object into another (RFC 7386, backwards)."""

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What to send so that `before` becomes `after`; empty when they are equal. Lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_patch(old, value):
                patch[key] = inner
        elif value is None:
            if old is not None:
                patch[key] = None
        elif key not in before or old != value:
            patch[key] = value
    return patch
