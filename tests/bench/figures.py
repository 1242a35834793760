"""Percentiles of measured seconds, in milliseconds. Figures only: nothing here passes or fails."""

from collections.abc import Mapping, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; `share` between 0 and 1. Raises ValueError for no values: a figure of nothing is no figure."""
    if not values:
        raise ValueError("no values were measured")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(values: Sequence[float]) -> dict[str, float]:
    """p50, p99 and maximum."""
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: round(1000 * percentile(values, share), 2) for name, share in shares.items()}


def ratios(ours: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float | None]:
    """How many times the others' each figure is, by the figures' own names; None where theirs is nothing."""
    return {name: round(value / others[name], 2) if others[name] else None for name, value in ours.items()}
