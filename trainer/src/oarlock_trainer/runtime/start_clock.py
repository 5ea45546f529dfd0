"""Where the seconds before the first step go: they are paid again after every fault."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class StartPart(StrEnum):
    """What a rank does before it trains, in this order."""

    MEET = "meet"
    """Until all ranks have met, with the collective check where it is asked for."""
    OUTPUT = "output"
    """Take the output over, find the newest checkpoint and compare its hashes, or fetch a copy of it."""
    FETCH = "fetch"
    """Bring the model to the node."""
    DATA = "data"
    """Metadata and whatever is not encoded yet."""
    MODEL = "model"
    """Plan, load the weights, spread them, compile where asked for, load the checkpoint."""
    REST = "rest"
    """The order of samples, the first reads, the writer of checkpoints."""


class StartClock:
    """A stopwatch that is read once after each part."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts now."""
        self._clock = clock
        self._last = clock()
        self._seconds: dict[StartPart, float] = {}

    def lap(self, part: StartPart) -> None:
        """All since the last lap was `part`."""
        now = self._clock()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._last
        self._last = now

    @property
    def seconds(self) -> Mapping[StartPart, float]:
        """Seconds by part."""
        return self._seconds

    def words(self) -> str:
        """One line for people."""
        parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in self._seconds.items())
        return f"started in {sum(self._seconds.values()):.1f} s: {parts}"
