"""The figures of running jobs, from rank 0's pod by a caller's own request; kept for seconds, and for him alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from oarlock.errors import ForbiddenError, OarlockError
from oarlock.leader import Leader
from oarlock.web.asked import Asked
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
    asked: Asked[Known] = field(default_factory=Asked)
    known: Known | None = None
    leader: Leader | None = None

    def ask(self, find: Callable[[], Leader], attempt: int) -> Known:
        """Of the pod that told last; where that is gone, or is of an attempt before this one, of whichever `find` gives."""
        before, self.leader = self.leader, None
        if before:
            try:
                return self._ask(before, attempt)
            except ForbiddenError:
                raise
            except OarlockError:
                pass  # recovery has put another pod in its place
        return self._ask(find(), attempt)

    def _ask(self, leader: Leader, attempt: int) -> Known:
        self.known = Known(*leader.figures())
        if self.known.attempt >= attempt:
            self.leader = leader
        return self.known


class LiveFigures:
    """Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, Hashable], _Told] = OrderedDict()

    def of(self, caller: str, job: Hashable, find: Callable[[], Leader], *, attempt: int = 0) -> Known:
        """All that rank 0's pod tells; `find` gives that pod, `attempt` is the job's newest. Raises OarlockError."""
        with self._lock:
            told = self._told.pop((caller, job), None) or _Told()
            self._told[caller, job] = told
            if len(self._told) > MOST_JOBS:
                self._told.popitem(last=False)
        return told.asked.answer(told.known, KEPT_SECONDS, lambda: told.ask(find, attempt))

    def close(self) -> None:
        """Forget them."""
        with self._lock:
            self._told.clear()
