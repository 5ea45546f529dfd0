"""Batches made ahead of the step that needs them, so that a slow read is waited for by nobody.

A rank whose next batch is not there says so, and the others wait for it where their agents do not take that for a hang (see
train.loop). So a storage may pause for minutes, in which ranks can be asked to leave. One that answers no more ends the
rank, with the storage as the cause.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.runtime.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from oarlock_trainer.data.batches import Loader, StepBatch
    from oarlock_trainer.engine.process_group import RankGroup

_AHEAD = 3
"""Steps that are ready or being read: with steps of seconds, longer than storage stalls for."""
_STUCK_SECONDS = 180.0
"""NFS servers that fail over are back within two minutes and their grace time."""
_LOADING_SECONDS = 600.0
"""Before the first batch: indices are read, and an encoder may have to be loaded."""
_LEAVING_SECONDS = 5.0
"""For reading and publishing to end: what is cut off is made again."""
_TURN_SECONDS = 1.0


def patience(hang_seconds: float) -> float:
    """Seconds in which nothing is read before the storage is given up; longer where the job is patient with its steps."""
    return max(_STUCK_SECONDS, hang_seconds)


class Prefetcher:
    """Hands out steps in order. One step is made at a time, by many threads; see data.batches."""

    def __init__(
        self,
        loader: Loader,
        first: int,
        last: int,
        *,
        patience: float = _STUCK_SECONDS,
        begin: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Steps first .. last - 1. Threads start here: after any fork. `patience` in seconds, from the second step on.

        `begin` is what the thread that makes batches, and pins them, does first.
        """
        self._loader = loader
        self._last = last
        self._step = first
        self._asked = first
        self._clock = clock
        self._patience = _LOADING_SECONDS
        self._later_patience = patience
        self._waiting: float | None = None
        self._beat = Heartbeat(clock)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches", initializer=begin)
        self._coming: deque[Future[StepBatch]] = deque()
        self._ask()

    @property
    def ready(self) -> bool:
        """Whether nobody would wait for the next batch; there may be none."""
        return not self._coming or self._coming[0].done()

    def wait(self) -> bool:
        """Whether the next batch can be taken within a second; raises StorageError where nothing is read any more."""
        if not self._coming:
            raise IndexError(f"step {self._step} is beyond the last one, {self._last - 1}")
        if self._waiting is None:
            self._waiting = self._clock()
        if not wait([self._coming[0]], timeout=_TURN_SECONDS).done:
            self._still_comes(self._waiting)
            return False
        return True

    def take(self) -> StepBatch:
        """The next step's batch; raises what reading it raised, and what `wait` raises."""
        while not self.wait():
            pass
        batch = self._coming.popleft().result()
        self._waiting = None
        self._patience = self._later_patience
        self._step += 1
        self._ask()
        return batch

    def close(self) -> None:
        """Stop reading, and publish what was encoded on the way; raises what that raises."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._loader.close()

    def leave(self) -> None:
        """As `close`, for a process that ends without waiting for its threads: a storage that is away keeps nobody."""
        closing = Background(self.close)
        try:
            if closing.wait(_LEAVING_SECONDS):
                closing.result()
        except StorageError as error:
            channel.tell(f"what was encoded on the way is not kept: {error}")

    def _still_comes(self, since: float) -> None:
        """Say that this rank waits for its data, or why it waits no longer."""
        still = self._clock() - max(since, self._loader.moved)
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


def data_come(prefetch: Prefetcher, ranks: RankGroup, *, leaving: Callable[[], bool]) -> bool:
    """Wait until every rank can take its next batch; False where one is `leaving`. Collective.

    Raises StorageError where this rank reads nothing any more.
    """
    while True:
        there = prefetch.wait()
        with channel.waiting():  # for a slower rank: none of this one's own slowness
            having, left = ranks.sum([float(there), float(leaving())])
        if left:
            return False
        if having == ranks.rank_info.world_size:
            return True
