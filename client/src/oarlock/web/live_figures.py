"""The figures of running jobs, from rank 0's pod by a caller's own request; kept for seconds, and for him alone."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from oarlock.errors import OarlockError
from oarlock.leader import Leader
from oarlock_api.contract.reads import StepFigures

KEPT_SECONDS = 4.0
"""Less than a heartbeat of a page, more than the changes of one step are apart."""
MOST_JOBS = 32


@dataclass(frozen=True, slots=True)
class Known:
    """What was told last."""

    attempt: int
    steps: Sequence[StepFigures]


@dataclass(slots=True)
class _Told:
    lock: threading.Lock = field(default_factory=threading.Lock)
    known: Known | None = None
    leader: Leader | None = None
    at: float = 0.0


class LiveFigures:
    """Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, Hashable], _Told] = OrderedDict()

    def of(self, caller: str, job: Hashable, find: Callable[[], Leader]) -> Known:
        """All that rank 0's pod tells; `find` gives that pod. Raises OarlockError."""
        with self._lock:
            told = self._told.pop((caller, job), None) or _Told()
            self._told[caller, job] = told
            if len(self._told) > MOST_JOBS:
                self._told.popitem(last=False)
        with told.lock:
            if told.known is None or time.monotonic() - told.at > KEPT_SECONDS:
                told.leader, leader = None, told.leader or find()
                try:
                    attempt, steps = leader.figures()
                except OarlockError:
                    told.known = None
                    raise
                told.known, told.leader, told.at = Known(attempt, steps), leader, time.monotonic()
            return told.known

    def close(self) -> None:
        """Forget them."""
        with self._lock:
            self._told.clear()
