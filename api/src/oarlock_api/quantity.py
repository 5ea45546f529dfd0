"""Kubernetes' notation for amounts, as a number of bytes. The bounds of the notation stand in `primitives`."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal

_PARTS = re.compile(r"^([0-9.]+(?:[eE][0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?$")
LARGEST = 2**63 - 1
"""More than any storage holds."""
_DECIMAL = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def amount(quantity: str) -> Decimal:
    """`200Gi` -> 214748364800, `500m` -> 0.5; infinite beyond all bounds. Raises ValueError for what is no quantity."""
    parts = _PARTS.match(quantity)
    if parts is None:
        raise ValueError(f"{quantity!r} is no quantity such as 200Gi")
    # Without traps, what is beyond all bounds becomes infinite instead of an error.
    endless = Context(traps=[])
    number, unit = endless.create_decimal(parts[1]), parts[2] or ""
    if unit == "m":
        factor = Decimal("0.001")
    elif unit.endswith("i"):
        factor = Decimal(1024) ** _DECIMAL[unit[0].replace("K", "k")]
    else:
        factor = Decimal(1000) ** _DECIMAL.get(unit, 0)
    return endless.multiply(number, factor)


def whole_bytes(quantity: str) -> int:
    """`200Gi` -> 214748364800; rounded up, at most LARGEST. Raises ValueError for what is no quantity."""
    return math.ceil(min(amount(quantity), Decimal(LARGEST)))
