"""The figures of this attempt, for a curve: each of the last steps, and the ones before them spread evenly. Bounded.

It is in memory, so that whoever looks at a curve costs the output's storage nothing, and a storage that hangs costs no look.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from oarlock_api.contract.reads import MOST_FIGURES, StepFigures

if TYPE_CHECKING:
    from oarlock_api.contract.figures import Figures

_LAST = MOST_FIGURES // 2
_BEFORE = MOST_FIGURES - _LAST


class RecentFigures:
    """At most MOST_FIGURES steps. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: deque[StepFigures] = deque()
        self._before: list[StepFigures] = []
        self._passed = 0
        """Steps that were among the last ones once."""
        self._every = 1
        """So many of those stand for one that is kept."""

    def add(self, figures: Figures, *, time: str) -> None:
        """Take in a step that was done. One that went back to an earlier step does those after it again."""
        step = figures.step or 0
        with self._lock:
            for kept in (self._last, self._before):
                while kept and (kept[-1].figures.step or 0) >= step:
                    kept.pop()
            if not self._before:
                self._passed, self._every = 0, 1
            self._last.append(StepFigures(time=time, figures=figures))
            if len(self._last) <= _LAST:
                return
            oldest = self._last.popleft()
            if self._passed % self._every == 0:
                self._before.append(oldest)
            self._passed += 1
            if len(self._before) == _BEFORE:
                self._before = self._before[::2]
                self._every *= 2

    def since(self, step: int) -> list[StepFigures]:
        """The steps after this one that are kept, the oldest first."""
        with self._lock:
            return [one for one in chain(self._before, self._last) if (one.figures.step or 0) > step]
