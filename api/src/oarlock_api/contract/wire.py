"""Reading JSON from the other side: bounded, tolerant of unknown fields, never an exception for a strange value."""

from __future__ import annotations

import json
import math
from typing import Any


class WireError(ValueError):
    """The text is no JSON object, or a field without which it means nothing is missing."""


def parse_object(text: str, *, max_bytes: int) -> dict[str, Any]:
    """Parse one JSON object of at most `max_bytes`.

    Raises WireError where the text is longer, no JSON, or no object.
    """
    if len(text.encode(errors="replace")) > max_bytes:
        raise WireError(f"longer than {max_bytes} bytes")
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WireError("not a JSON object")
    return value


def text(value: object, limit: int = 256) -> str:
    """A string of at most `limit` characters that can be written again; anything else becomes the empty string."""
    return encodable(value[:limit]) if isinstance(value, str) else ""


def encodable(value: str) -> str:
    """`value` with `?` for lone surrogates: JSON can escape them and file names can hold them, but UTF-8 has none."""
    return value.encode(errors="replace").decode()


def integer(value: object) -> int | None:
    """An integer within 64 bits, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def number(value: object) -> float | None:
    """A finite number, or None: JSON has no NaN, and nobody may act on one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def finite(value: float | None) -> float | None:
    """What may be written: None for a number that is not finite."""
    return value if value is not None and math.isfinite(value) else None
