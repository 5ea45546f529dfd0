"""How fast a GPU runs at one moment, and what NVML says against its running faster. For people, never for a verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oarlock_api.contract.wire import integer, text


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPace:
    """Clocks of the SMs in MHz, None where they can't be known. `slowed_by`: NVML's clock event reasons."""

    index: int
    clock: int | None = None
    highest_clock: int | None = None
    slowed_by: tuple[str, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it."""
        return asdict(self)


def parse_pace(raw: object) -> GpuPace | None:
    """Read it from JSON; None where it names no GPU."""
    if not isinstance(raw, dict) or (index := integer(raw.get("index"))) is None:
        return None
    reasons = raw.get("slowed_by")
    return GpuPace(
        index=index,
        clock=integer(raw.get("clock")),
        highest_clock=integer(raw.get("highest_clock")),
        slowed_by=tuple(text(one, 64) for one in reasons[:16]) if isinstance(reasons, list) else (),
    )
