"""What a GPU was like when something spoke against it: for people and webhooks, never for a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oarlock_api.contract.wire import integer, number, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """None where it can't be known, or nobody looked. ECC errors since the driver was loaded."""

    temperature_celsius: float | None = None
    ecc_errors_single: int | None = None
    ecc_errors_double: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    memory_used_percent: float | None = None


NO_READINGS = Readings()


def parse_readings(raw: object) -> Readings:
    """Read them from JSON."""
    known: dict[str, Any] = raw if isinstance(raw, dict) else {}
    reasons = known.get("throttle_reasons")
    return Readings(
        temperature_celsius=number(known.get("temperature_celsius")),
        ecc_errors_single=integer(known.get("ecc_errors_single")),
        ecc_errors_double=integer(known.get("ecc_errors_double")),
        throttle_reasons=tuple(text(one, 64) for one in reasons[:16]) if isinstance(reasons, list) else (),
        memory_used_percent=number(known.get("memory_used_percent")),
    )
