"""Mounted storage, read on threads of its own: where it does not answer it keeps these, and nobody waits for long.

Nothing ends a thread that waits for a server of NFS. So each storage has a few threads and no more, and others for streams,
which last: who asks waits SECONDS at most, and not at all while all of them wait for longer than that. They go on when the
storage does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from itertools import islice
from queue import Empty, Full, Queue
from typing import Any, TypeVar

from oarlock.errors import NotNowError
from oarlock.web.busy import BusyError

AT_ONCE, STREAMS = 4, 2
SECONDS = 5.0
PIECE = 500
"""Items of a stream that are handed on together."""
_LOOK_SECONDS = 0.5
T = TypeVar("T")


class Storage:
    """One mounted folder. Used by any thread."""

    def __init__(self, where: str, *, seconds: float = SECONDS) -> None:
        """`where` is told to people."""
        self._where, self._seconds = where, seconds
        self._lock = threading.Lock()
        self._once: dict[Hashable, Future[Any]] = {}
        self._reads, self._streams = _Threads(where, AT_ONCE), _Threads(where, STREAMS)

    def deadline(self) -> float:
        """Until when who asks now waits for all that he reads, by the clock `time.monotonic`."""
        return time.monotonic() + self._seconds

    def read(self, call: Callable[[], T], until: float | None = None, *, once: Hashable = None) -> T:
        """What a call that reads there gives. Raises what it raises, NotNowError for OSError or where it takes too long.

        `once`: a name of what is read, which is not read again while another call reads it: its answer is this one's, too.
        """
        until = self.deadline() if until is None else until
        answer: Future[T] = self._begun(call, until, once)
        try:
            return answer.result(max(0.0, until - time.monotonic()))
        except OSError as error:  # TimeoutError is one, too: ours, or the storage's own
            raise (self._unread(error) if answer.done() else self._reads.away(answer)) from error

    def _begun(self, call: Callable[[], T], until: float, once: Hashable) -> Future[T]:
        answer: Future[T] = Future()
        with self._lock:
            if once is not None:
                self._once = {name: one for name, one in self._once.items() if not one.done()}
                if self._once.setdefault(once, answer) is not answer:
                    return self._once[once]
        try:
            self._reads.start(call, answer, until)
        except Exception as error:  # noqa: BLE001 - who reads it raises it
            answer.set_exception(error)
        return answer

    def stream(self, make: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What an iterator that reads there gives. Raises as `read`."""
        pieces: Queue[list[T] | Exception | None] = Queue(4)
        over = threading.Event()

        def run() -> None:
            end: Exception | None = None
            try:
                items = make()
                while piece := list(islice(items, PIECE)):
                    if not _put(pieces, piece, over):
                        return
            except OSError as error:
                end = self._unread(error)
            except Exception as error:  # noqa: BLE001 - who reads the stream raises it
                end = error
            _put(pieces, end, over)

        done: Future[None] = Future()
        self._streams.start(run, done, self.deadline())
        try:
            while True:
                try:
                    piece = pieces.get(timeout=self._seconds)
                except Empty:
                    raise self._streams.away(done) from None
                if isinstance(piece, Exception):
                    raise piece
                if piece is None:
                    return
                yield from piece
        finally:
            over.set()

    def _unread(self, error: OSError) -> NotNowError:
        return NotNowError(f"{self._where} cannot be read here: {error.strerror}")


class _Threads:
    """So many at once."""

    def __init__(self, where: str, most: int) -> None:
        self._where, self._most = where, most
        self._free = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._late: list[Future[Any]] = []

    def start(self, call: Callable[[], T], answer: Future[T], until: float) -> None:
        """Begin it. Raises NotNowError where no thread is free: BusyError, unless all of them wait for the storage."""
        if self._are_late() or not self._free.acquire(timeout=max(0.0, until - time.monotonic())):
            if self._are_late():
                raise self.away()
            raise BusyError(f"{self._where} is busy: others read there just now. Try again in some seconds")
        threading.Thread(target=self._run, args=(call, answer), name=f"reads {self._where}", daemon=True).start()

    def away(self, answer: Future[T] | None = None) -> NotNowError:
        """What is told to whom has waited long enough, for `answer`."""
        if answer:
            with self._lock:
                self._late = [*(one for one in self._late if one is not answer), answer]
        return NotNowError(f"{self._where} does not answer: what lies there is shown once it does")

    def _are_late(self) -> bool:
        with self._lock:
            self._late = [one for one in self._late if not one.done()]
            return len(self._late) == self._most

    def _run(self, call: Callable[[], T], answer: Future[T]) -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - who has asked raises it
            answer.set_exception(error)
        finally:
            self._free.release()


def _put(pieces: Queue[T], piece: T, over: threading.Event) -> bool:
    """Hand it on; False where nobody wants it any more."""
    while not over.is_set():
        try:
            pieces.put(piece, timeout=_LOOK_SECONDS)
        except Full:
            continue
        return True
    return False
