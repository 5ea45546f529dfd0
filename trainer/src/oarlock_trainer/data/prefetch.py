"""Batches made ahead of the step that needs them, so that a slow read is waited for by nobody."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from oarlock_trainer.data.batches import Loader, StepBatch

_AHEAD = 3
"""Steps that are ready or being read: with steps of seconds, longer than storage stalls for."""


class Prefetcher:
    """Hands out steps in order. One step is made at a time, by many threads; see data.batches."""

    def __init__(self, loader: Loader, first: int, last: int) -> None:
        """Steps first .. last - 1. Threads start here: after any fork."""
        self._loader = loader
        self._last = last
        self._step = first
        self._asked = first
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._coming: deque[Future[StepBatch]] = deque()
        self._ask()

    def take(self) -> StepBatch:
        """The next step's batch; raises what reading it raised."""
        if not self._coming:
            raise IndexError(f"step {self._step} is beyond the last one, {self._last - 1}")
        batch = self._coming.popleft().result()
        self._step += 1
        self._ask()
        return batch

    def close(self) -> None:
        """Stop reading."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._loader.close()

    def _ask(self) -> None:
        while self._asked < min(self._step + _AHEAD, self._last):
            self._coming.append(self._pool.submit(self._loader.step, self._asked))
            self._asked += 1
