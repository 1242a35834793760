"""The merge patch between two statuses, judged by applying it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from overspill_lab.merging import merge_patch

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def applied(target: Any, patch: Any) -> Any:
    """RFC 7386, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


def meaning(value: Any) -> Any:
    """As Kubernetes reads it: an absent field and an empty or zero one are the same."""
    if not isinstance(value, dict):
        return value
    kept = {key: meaning(inner) for key, inner in value.items()}
    return {key: inner for key, inner in kept.items() if inner}


@given(OBJECTS, OBJECTS)
def test_the_patch_turns_one_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert meaning(applied(before, merge_patch(before, after))) == meaning(after)


@given(OBJECTS)
def test_nothing_is_sent_when_nothing_changes(same: dict[str, Any]) -> None:
    assert merge_patch(same, same) == {}


def test_absent_and_zero_are_the_same() -> None:
    assert merge_patch({}, {"ready": 0, "conditions": None, "names": {}}) == {}
    assert merge_patch({"ready": 0}, {}) == {}
    assert merge_patch({"ready": 1}, {"ready": 0}) == {"ready": 0}
    assert merge_patch({"names": {"a": 1}}, {"names": {}}) == {"names": {"a": None}}
