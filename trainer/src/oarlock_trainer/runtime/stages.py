"""Work in stages that run at the same time, each in threads of its own: as fast as the slowest of them.

What a stage makes is a future that the next one waits for, so order is kept and errors travel to whoever asks for the
last result. Queues are bounded by whoever feeds the first stage (`ahead`) and drains the last one (`PendingResults`). Every
stage counts the seconds that it worked, waiting left out: what decides about the speed can be told.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

_TURN_SECONDS = 1.0


class PipelineStage:
    """One stage. `busy` counts the seconds of work of all its threads."""

    def __init__(self, name: str, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.threads = threads
        self.busy = 0.0
        self._clock = clock
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, work: Callable[..., Result], *arguments: Any, after: Sequence[Future[Any]] = ()) -> Future[Result]:
        """Do work in a thread once all of `after` have ended, whose results are its first arguments."""

        def run() -> Result:
            earlier = [future.result() for future in after]
            with self.working():
                return work(*earlier, *arguments)

        return self._pool.submit(run)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count this as work of the stage, in whatever thread."""
        began = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self.busy += self._clock() - began

    def close(self, *, drop: bool) -> None:
        """End the threads: after all work that was submitted, or without beginning any more of it."""
        self._pool.shutdown(wait=True, cancel_futures=drop)


class Stages:
    """The stages of one kind of work, from the first to the last. No thread of theirs outlives the context."""

    def __init__(self, stages: Sequence[PipelineStage], *, making: int) -> None:
        """Where an error ends the work, the first `making` stages drop what they have not begun; the others end it."""
        self._stages = stages
        self._making = making

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for number, stage in enumerate(self._stages):
            stage.close(drop=error is not None and number < self._making)


class PendingResults(Generic[Result]):
    """Results that nobody waits for, but for errors: at most `limit` are outstanding."""

    def __init__(self, limit: int, go_on: Callable[[], None]) -> None:
        self._limit = limit
        self._go_on = go_on
        self._waiting: deque[Future[Result]] = deque()

    def put(self, future: Future[Result]) -> None:
        """Add one; waits for the oldest where there are too many, and raises what it raised."""
        self._waiting.append(future)
        self._down_to(self._limit)

    def drain(self) -> None:
        """Wait for all."""
        self._down_to(0)

    def _down_to(self, limit: int) -> None:
        while len(self._waiting) > limit:
            wait_for(self._waiting.popleft(), self._go_on)


def ahead(
    items: Iterable[Item],
    start: Callable[[Item], Future[Result]],
    *,
    limit: int,
    weight: Callable[[Item], int] = lambda _: 0,
    most: int = 0,
) -> Iterator[tuple[Item, Future[Result]]]:
    """Items in order, each with its future; `limit` more are started by the time that one is given.

    Those that are started and not given yet weigh `most` together, unless it is one alone.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    held = 0
    for item in items:
        while waiting and held + weight(item) > most:
            held -= weight(waiting[0][0])
            yield waiting.popleft()
        waiting.append((item, start(item)))
        held += weight(item)
        if len(waiting) > limit:
            held -= weight(waiting[0][0])
            yield waiting.popleft()
    yield from waiting


def wait_for(future: Future[Result], go_on: Callable[[], None], *, every: float = _TURN_SECONDS) -> Result:
    """A future's result, or what it raised; `go_on` is called after each `every` seconds of waiting, and may raise."""
    while True:
        try:
            return future.result(timeout=every)
        except TimeoutError:
            if future.done():
                return future.result()
            go_on()
