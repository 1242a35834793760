"""Quantities as the server tells them back: the largest suffix of the same family that leaves a whole number.

Pure; follows `resource.Quantity.CanonicalizeBytes`.
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from overspill_objects.quantity import parse_quantity

_DECIMAL = (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0), ("m", -3), ("u", -6), ("n", -9))
_BINARY = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
_EXPONENT = re.compile(r"[0-9.][eE][+-]?[0-9]+$")


@lru_cache(maxsize=4096)
def canonical(value: str | float) -> str:
    """Return the canonical text of a quantity; raises ValueError for what is none."""
    text = str(value)
    amount = parse_quantity(value)
    if _EXPONENT.search(text) or amount == 0:
        return text if amount else "0"
    if text.endswith("i"):
        for suffix, power in _BINARY:
            count = amount / (1 << power)
            if count == count.to_integral_value():
                return f"{int(count)}{suffix}"
    for suffix, power in _DECIMAL:
        count = amount.scaleb(-power)
        if count == count.to_integral_value():
            return f"{int(count)}{suffix}"
    return text


def canonicalise(amounts: Any) -> Any:
    """Return a map of resources with every quantity in canonical form; what is no map comes back as it is."""
    if not isinstance(amounts, dict):
        return amounts
    return {name: canonical(value) for name, value in amounts.items()}


def written(amount: Decimal) -> str:
    """Write an amount that was computed."""
    return canonical(f"{amount:f}")
