"""A second request for what comes too late; the first answer wins.

Of a thousand ranged reads of a store a few take ten times as long as the others, and a batch waits for its slowest
sample. Such a read is seldom slow again when it is asked a second time (J. Dean and L. A. Barroso, The Tail at Scale,
2013). What that costs is bounded: extra requests are a small share of all, whatever the store does.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RECENT = 512
_ENOUGH = 128
"""A 99th percentile of less is a guess."""
_LOOK_AGAIN = 32
_LEAST_SECONDS = 0.02
"""What a process waits for by chance when its machine is busy. A request that comes that soon is not late."""
_BURST = 8.0


class Hedge:
    """Hedging for reads of one store. Safe to use from several threads.

    A read is late after `factor` times the 99th percentile of the recent reads of its size (within a factor of two). At
    most `share` of all reads are asked twice.
    """

    def __init__(
        self, *, factor: float = 2.0, share: float = 0.05, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._factor = factor
        self._share = share
        self._clock = clock
        self._lock = threading.Lock()
        self._sizes: dict[int, _Recent] = {}
        self._credit = 0.0

    def first(
        self, size: int, ask: Callable[[], bytes], *, again: Callable[[], Callable[[], bytes] | None] | None = None
    ) -> bytes:
        """The answer to `ask`, which reads `size` bytes: the first of two where one is late. Both failed: its error.

        `again` gives the second request, None where there is no room for one; by default it is `ask` once more.
        """
        with self._lock:
            recent = self._sizes.setdefault(size.bit_length(), _Recent())
            late = recent.percentile * self._factor
            self._credit = min(self._credit + self._share, _BURST)
        if not late:
            return self._timed(recent, ask)
        answers: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
        self._start(recent, ask, answers)
        try:
            answer = answers.get(timeout=max(late, _LEAST_SECONDS))
        except queue.Empty:
            second = self._second(again or (lambda: ask))
            if second:
                self._start(recent, second, answers)
            answer = answers.get()
            if second and isinstance(answer, BaseException):
                answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _start(
        self, recent: _Recent, ask: Callable[[], bytes], answers: queue.SimpleQueue[bytes | BaseException]
    ) -> None:
        def answer() -> None:
            try:
                answers.put(self._timed(recent, ask))
            except BaseException as error:  # noqa: BLE001 - whoever asked gets it
                answers.put(error)

        _threads(os.getpid()).do(answer)

    def _timed(self, recent: _Recent, ask: Callable[[], bytes]) -> bytes:
        began = self._clock()
        answer = ask()
        with self._lock:
            recent.note(self._clock() - began)
        return answer

    def _second(self, again: Callable[[], Callable[[], bytes] | None]) -> Callable[[], bytes] | None:
        """The second request, where one may be made."""
        with self._lock:
            if self._credit < 1.0:
                return None
            second = again()
            self._credit -= 1.0 if second else 0.0
            return second


class _Recent:
    """How long the last reads of one size took, in seconds; `percentile` is 0 while there are too few."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._noted = 0
        self.percentile = 0.0

    def note(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._noted += 1
        if self._noted >= _ENOUGH and self._noted % _LOOK_AGAIN == 0:
            self.percentile = sorted(self._seconds)[int(0.99 * len(self._seconds))]


class _Threads:
    """Threads that nobody waits for: the loser may hang until its connection is given up. Each serves many reads.

    One made for each read would take a tenth of the time of reading 1 MiB from the same machine (bench/s3.py).
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def do(self, task: Callable[[], None]) -> None:
        """Begin `task` at once. It must not raise."""
        with self._lock:
            waiting = self._idle > 0
            self._idle -= waiting
        self._tasks.put(task)
        if not waiting:
            threading.Thread(target=self._serve, name="ranged-read", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._tasks.get()()
            with self._lock:
                self._idle += 1


@functools.cache
def _threads(_process: int) -> _Threads:
    """A process's own: threads do not outlive a fork."""
    return _Threads()
