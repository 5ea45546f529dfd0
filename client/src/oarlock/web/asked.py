"""A question that many ask: one asks it, others wait for that answer, and one that has failed is not asked again at once.

No lock is held while it is asked. What was answered is kept by whoever asks; here is when that was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from oarlock.errors import ForbiddenError, OarlockError
from oarlock.web.busy import BusyError

FAILED_SECONDS = 10.0
"""For so long whoever asks is told how it has failed: each page that is open would ask again at once."""
WAIT_SECONDS = 5.0
"""For another one's answer: so long a thread of the server stands still."""
T = TypeVar("T")


class Asked(Generic[T]):
    """Used by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asking: Future[T] | None = None
        self._answered = self._failed = float("-inf")
        self._error: OarlockError | None = None

    @property
    def age(self) -> float:
        """Seconds since it was answered last; without end where it never was, or where it was forbidden since."""
        return self._clock() - self._answered

    @property
    def error(self) -> OarlockError | None:
        """How it has failed, FAILED_SECONDS ago at most and not been answered since."""
        error = self._error  # which another thread may take away
        recent = self._clock() - self._failed < FAILED_SECONDS
        return error.with_traceback(None) if error and recent else None

    def answer(self, known: T | None, within: float, ask: Callable[[], T]) -> T:
        """`known`, if it was answered so many seconds ago at most; else what `ask` gives, to this one or to another.

        Raises what `ask` has raised FAILED_SECONDS ago at most, and BusyError where another one's answer takes long.
        """
        with self._lock:
            if known is not None and self.age < within:
                return known
            if error := self.error:
                raise error
            another = self._asking
            mine = self._asking = another or Future()
        if another is None:
            return self._ask(mine, ask)
        try:
            return another.result(WAIT_SECONDS)
        except TimeoutError:
            if another.done():  # just now, or with a TimeoutError of its own
                return another.result()
            raise BusyError("another page waits for the same answer, and it takes long: try again soon") from None

    def _ask(self, mine: Future[T], ask: Callable[[], T]) -> T:
        try:
            found = ask()
        except BaseException as error:
            with self._lock:
                self._asking = None
                if isinstance(error, OarlockError) and not isinstance(error, BusyError):
                    self._error, self._failed = error, self._clock()
                if isinstance(error, ForbiddenError):
                    self._answered = float("-inf")
            mine.set_exception(error)
            raise
        with self._lock:
            self._asking, self._error, self._answered = None, None, self._clock()
        mine.set_result(found)
        return found
