"""Figures and times as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.clock import parsed
from oarlock.explain import some_names

DASH = "\u2013"
_THOUSANDS, _LARGE = 1e4, 1e12
"""Where four digits would need an exponent, and from where on it is wanted."""


def instant(time: str) -> float | None:
    """Seconds since 1970 of a time in RFC 3339; None where it is none."""
    found = parsed(time)
    return found.timestamp() if found else None


def when(time: str) -> str:
    """A time to the second, in UTC as everything here is; a dash where it is not known."""
    return f"{time[:10]} {time[11:19]}" if len(time) > len("2026-11-23T10:00") else DASH


def figure(value: float | None, unit: str = "") -> str:
    """Four significant digits; a dash for what is not known."""
    if value is None:
        return DASH
    told = f"{value:,.0f}" if _THOUSANDS <= abs(value) < _LARGE else f"{value:.4g}"
    return f"{told} {unit}".rstrip()


def whole(value: int | None) -> str:
    """With thousands apart; a dash for what is not known."""
    return DASH if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """The two largest units: 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def some(names: Sequence[str], most: int = 8) -> str:
    """The first names, and how many more there are; a dash for none."""
    return some_names.some(names, most) if names else DASH
