"""Asking again: with full jitter, until a deadline that counts for all tries together.

Why not botocore's own retries: they end with the head of an answer, so a body that breaks off is not tried again, and
they count tries, so that nobody can say how long a job may wait. https://aws.amazon.com/builders-library/
timeouts-retries-and-backoff-with-jitter/ has the reasons for full jitter.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on: no try begins later than `seconds` after the first.

    A service that throttles (503 SlowDown) wants less from all of us together. So the delays grow to `longest_delay`, and
    each is a random part of that: 256 ranks that were refused at once don't come back at once.
    """

    seconds: float = 120.0
    first_delay: float = 0.1
    longest_delay: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def ask(self, request: Callable[[], _Answer], *, again: Callable[[Exception], bool]) -> _Answer:
        """The answer to `request`; else the last try's error, or the first that `again` says to be final."""
        began = self.clock()
        longest = self.first_delay
        for _ in itertools.count():
            try:
                return request()
            except Exception as error:
                delay = self.chance() * longest
                if not again(error) or self.clock() + delay - began >= self.seconds:
                    raise
            self.sleep(delay)
            longest = min(longest * 2, self.longest_delay)
        raise AssertionError
