"""Axes: where a value lies in a drawing, and which values are written beside it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two marks of an axis of time; beyond them, whole days."""
_MOST_DIGITS, _LARGE = 6, 1e9
"""Decimals, and a value: with more of them, or beyond it, a mark has an exponent."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` to `high` in units of the value, drawn from `start` to `end` in units of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where it lies; what is beyond an end lies at that end."""
        span = self.high - self.low
        share = (value - self.low) / span if span > 0 else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def share(place: float) -> str:
    """A part of the width."""
    return f"{place:.2f}".rstrip("0").rstrip(".") + "%"


def marks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values within an axis: 1, 2 or 5 times a power of ten apart."""
    if not high > low or math.isinf(high - low):
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / apart - 1e-9)
    return [place * apart for place in range(first, math.floor(high / apart + 1e-9) + 1)]


def time_marks(low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
    """Round times within an axis of seconds since 1970, and their words in UTC."""
    rough = max(high - low, 1.0) / most
    apart = next((known for known in _TIMES if known >= rough), math.ceil(rough / 86400) * 86400)
    found = []
    for place in range(math.ceil(low / apart), math.floor(high / apart) + 1):
        time = datetime.fromtimestamp(place * apart, UTC)
        day = apart >= _TIMES[-1] or (time.hour, time.minute, time.second) == (0, 0, 0)
        clock = "%H:%M" if apart >= 60 else "%H:%M:%S"
        found.append((float(place * apart), time.strftime("%b %d" if day else clock)))
    return found


def words_of(values: list[float]) -> list[str]:
    """The marks of an axis, with as many decimals as tell them apart."""
    apart = values[1] - values[0] if len(values) > 1 else 0.0
    digits = max(0, -math.floor(math.log10(apart) + 1e-9)) if apart > 0 else _MOST_DIGITS + 1
    plain = digits <= _MOST_DIGITS and all(abs(value) < _LARGE for value in values)
    return [f"{value:,.{digits}f}" if plain else f"{value:.4g}" for value in values]
