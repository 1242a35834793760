"""The merge patch that turns one JSON object into another (RFC 7386, backwards)."""

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What to send so that `before` becomes `after`; empty when they mean the same. Lists are replaced whole.

    A field that is absent and one that is zero or empty mean the same, as they do to Kubernetes (`omitempty`).
    """
    patch: dict[str, Any] = {key: None for key, value in before.items() if key not in after and value}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_patch(old, value):
                patch[key] = inner
        elif (value or old) and old != value:
            patch[key] = value
    return patch
