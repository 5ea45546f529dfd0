"""A view is drawn once for each change, and shared by all who look at the same address and may see what it was made of."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oarlock.errors import OarlockError
from oarlock.web.ask import Ask, View
from oarlock.web.watch.feed import Watched

MOST_ADDRESSES = 128
TIMED_SECONDS = 10.0
"""How long a view that tells the time may be shown."""


@dataclass(slots=True)
class _Drawn:
    lock: threading.Lock = field(default_factory=threading.Lock)
    view: View | None = None
    reads: Mapping[Watched, int] = field(default_factory=dict)
    until: float = 0.0
    own: bool = False


class Drawings:
    """The last drawing of each address. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Drawn] = OrderedDict()

    def draw(self, address: str, ask: Ask, draw: Callable[[Ask], View]) -> View:
        """The view at an address, its query included. Raises what reading its lists, or drawing, raises.

        Whoever gets another's drawing has read all lists that it was made of, and they are what they were.
        """
        drawn = self._of(address)
        if drawn.own:
            return draw(ask)
        try:
            for watched in tuple(drawn.reads):
                ask.watched(watched)  # his own right, asked before the lock is taken: a slow answer delays nobody else
        except OarlockError:
            return draw(ask)
        with drawn.lock:
            now = time.monotonic()
            same = drawn.view and all(ask.reads.get(one) == version for one, version in drawn.reads.items())
            if drawn.view and same and now < drawn.until:
                return drawn.view
            ask.reads.clear()
            ask.troubles.clear()
            view = draw(ask)
            if ask.partial:
                return view
            if ask.own:
                drawn.own, drawn.view, drawn.reads = True, None, {}
            else:
                drawn.view, drawn.reads = view, dict(ask.reads)
                drawn.until = now + TIMED_SECONDS if ask.timed else float("inf")
            return view

    def _of(self, address: str) -> _Drawn:
        with self._lock:
            drawn = self._kept.pop(address, None) or _Drawn()
            self._kept[address] = drawn
            while len(self._kept) > MOST_ADDRESSES:
                self._kept.popitem(last=False)
            return drawn
