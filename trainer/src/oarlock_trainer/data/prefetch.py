"""Batches made ahead of the step that needs them, so that a slow read is waited for by nobody.

A storage that answers no more would look like a hang of all ranks, who wait for this one in a collective. So a batch in
which nothing moves is given up before anybody calls that a hang, with the storage as the cause.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from oarlock_trainer.beat import Beat
from oarlock_trainer.errors import StorageError
from oarlock_trainer.preprocess.stages import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from oarlock_trainer.data.batches import Loader, StepBatch

_AHEAD = 3
"""Steps that are ready or being read: with steps of seconds, longer than storage stalls for."""
_STUCK_SECONDS = 45.0
"""The agents take a minute of silence for a hang (agent/hang.py)."""
_LOADING_SECONDS = 600.0
"""Before the first batch: indices are read, and an encoder may have to be loaded."""


class Prefetcher:
    """Hands out steps in order. One step is made at a time, by many threads; see data.batches."""

    def __init__(self, loader: Loader, first: int, last: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Steps first .. last - 1. Threads start here: after any fork."""
        self._loader = loader
        self._last = last
        self._step = first
        self._asked = first
        self._clock = clock
        self._patience = _LOADING_SECONDS
        self._waiting = clock()
        self._beat = Beat(clock)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._coming: deque[Future[StepBatch]] = deque()
        self._ask()

    def take(self) -> StepBatch:
        """The next step's batch; raises what reading it raised, and StorageError where nothing is read any more."""
        if not self._coming:
            raise IndexError(f"step {self._step} is beyond the last one, {self._last - 1}")
        self._waiting = self._clock()
        batch = wait_for(self._coming.popleft(), self._still_comes)
        self._patience = _STUCK_SECONDS
        self._step += 1
        self._ask()
        return batch

    def close(self) -> None:
        """Stop reading."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._loader.close()

    def _still_comes(self) -> None:
        """Say that this rank waits for its data, or why it waits no longer."""
        still = self._clock() - max(self._waiting, self._loader.moved)
        if still > self._patience:
            raise StorageError(
                f"the data of step {self._step + 1} do not come: nothing was read for {still:.0f} s. See to the storage "
                "of the embeddings (data.imageEmbeds, data.textEmbeds) and of the sources, and to the network to them"
            )
        self._beat()

    def _ask(self) -> None:
        while self._asked < min(self._step + _AHEAD, self._last):
            self._coming.append(self._pool.submit(self._loader.step, self._asked))
            self._asked += 1
