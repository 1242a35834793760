"""Subject filters of readers, checked before a server sees them: it takes some that can never match without a word.

This module must not know who filters.
"""

from collections.abc import Sequence

from overspill_events.subjects import SUBJECT_ROOT


def checked_filters(filters: Sequence[str]) -> list[str]:
    """The filters. Raises ValueError naming the one that can never match an event."""
    if isinstance(filters, str) or not filters:
        raise ValueError(f"filters {filters!r}: a list of subjects is needed, for instance ['{SUBJECT_ROOT}.>']")
    for subject in filters:
        tokens = subject.split(".")
        whole = all(tokens) and not any(character.isspace() for character in subject)
        if not whole or ">" in tokens[:-1] or not subject.startswith(f"{SUBJECT_ROOT}."):
            raise ValueError(f"filters: {subject!r} matches no event; subjects begin with {SUBJECT_ROOT}.")
    return list(filters)
