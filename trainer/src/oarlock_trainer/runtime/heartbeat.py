"""Signs of life from work that is no training step and takes long: the agent would take silence for a hang."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

from oarlock_trainer.runtime import channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")

_APART = 1.0


class Heartbeat:
    """Tells that work goes on, at most once a second, so that it costs nothing in the innermost loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = -math.inf

    def __call__(self) -> None:
        """The work has come a bit further."""
        now = self._clock()
        if now - self._last >= _APART:
            self._last = now
            channel.send(channel.Event.WORKING)


def alive(go_on: Callable[[], None]) -> Callable[[], None]:
    """The same, with a sign of life."""
    beat = Heartbeat()

    def still() -> None:
        go_on()
        beat()

    return still


def with_heartbeat(items: Iterable[Item], beat: Heartbeat) -> Iterator[Item]:
    """The same items, with a sign of life for each that is taken."""
    for item in items:
        beat()
        yield item
