"""A probe's readings of one GPU over time: like is compared with like, and changes count, not absolute values.

Many of NVML's counters outlive the job (a lifetime's ECC errors, last year's replays), so a probe judges what has changed
since this monitor's first reading, over a window, or several readings in a row. Three answers are conclusions of the
driver's own and count whenever they were reached: a row remap that failed, the SRAM's threshold, and a recovery action.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_api.contract.health import GpuVerdict
    from oarlock_trainer.health.nvml import Handle

KEPT = 64
"""Readings that a series holds: an hour of the slowest probe, a minute of the fastest."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value, and the monotonic second at which it was read."""

    at: float
    value: Any


@dataclass(slots=True)
class Series:
    """The first reading, and the newest ones in order."""

    first: Reading
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def latest(self) -> Any:
        """The newest value."""
        return self.readings[-1].value

    def last(self, count: int) -> Sequence[Any]:
        """The newest `count` values, fewer where there are not as many."""
        return [reading.value for reading in list(self.readings)[-count:]]

    def rise(self, seconds: float) -> tuple[float, float]:
        """(growth, seconds) of a counter over the last `seconds`, or as far back as readings go.

        A counter that fell was reset: growth is then counted from 0, as if it had begun anew.
        """
        newest = self.readings[-1]
        oldest = next(reading for reading in self.readings if newest.at - reading.at <= seconds)
        grown = newest.value - oldest.value if newest.value >= oldest.value else newest.value
        return grown, newest.at - oldest.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What a probe makes of a series: a verdict, the words for it, and the value that it rests on."""

    verdict: GpuVerdict
    words: str
    value: float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a GPU is asked, how often, and what the answers mean."""

    name: str
    """How it is called in /status, reports and metrics."""
    about: str
    """One sentence for the reference."""
    every: float
    """Seconds between readings."""
    read: Callable[[Handle], Any]
    """One value. Raises NVMLError."""
    judge: Callable[[Series], Suspicion | None]
    """What the readings say. Pure."""
    counts_xids: frozenset[int] = frozenset()
    """XIDs that have a verdict of their own and are counted here as well: after one of them, readings begin anew."""
