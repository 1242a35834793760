"""Kubernetes quantities ("100m", "1.5Gi", "8e9") as exact decimals.

Exact, because sums of requests are compared with capacities and a rounded sum could claim room that is not there. This
module must not know what is being counted.
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(1 << 10),
    "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30),
    "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50),
    "Ei": Decimal(1 << 60),
}
_PATTERN: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(?P<exponent>[eE][+-]?[0-9]{1,4})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)


@lru_cache(maxsize=4096)
def parse_quantity(value: str | float) -> Decimal:
    """The number that a quantity stands for, in its base unit (cores, bytes, devices).

    Accepts what the API server accepts: a decimal with an optional suffix (n u m k M G T P E Ki Mi Gi Ti Pi Ei) or an
    exponent; custom resources may also carry bare numbers. Raises ValueError that names the value for anything else.
    """
    match = _PATTERN.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None:
        raise ValueError(
            f"quantity {value!r} is not a number with an optional suffix such as m, k, M, Gi or an exponent"
        )
    return Decimal(match["number"] + (match["exponent"] or "")) * _SUFFIXES[match["suffix"] or ""]
