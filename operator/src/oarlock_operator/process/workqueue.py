"""The work queue: which jobs to look at, and when.

Guarantees: a key is worked on by one worker at a time; adding a key that is being worked on makes it run once more
afterwards; adding it twice before it runs makes it run once. Delays only ever shorten: an earlier wish wins over a later one.
What happened goes before what is only due: a thousand new jobs are not held up by routine looks at those that already run.
Single-threaded: all methods belong to one event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from oarlock_operator.kube.outages import LONGEST_DELAY

Key = TypeVar("Key", bound=Hashable)

FIRST_DELAY = 0.5
MAX_DELAY = 300.0
FAIRNESS = 8
"""Of so many keys taken, one is of those that are only due, so that these are never starved."""


class WorkQueue(Generic[Key]):
    """Keys to work on. `clock` returns monotonic seconds, `jitter` a factor in [0, 1)."""

    def __init__(self, *, clock: Callable[[], float], jitter: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._urgent: dict[Key, None] = {}
        self._due: dict[Key, None] = {}
        self._taken = 0
        self._noticed: dict[Key, tuple[float, bool]] = {}
        """When each waiting key was first noticed, and whether something happened to it."""
        self._working: set[Key] = set()
        self._timers: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[Key, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._noticed)

    def add(self, key: Key) -> None:
        """Have `key` worked on as soon as a worker is free."""
        self._add(key, urgent=True)

    def add_after(self, key: Key, delay: float) -> None:
        """Have `key` worked on in `delay` seconds, unless an earlier time is already set."""
        if delay <= 0:
            self.add(key)
            return
        due = self._clock() + delay
        if key in self._timers and self._timers[key][0] <= due:
            return
        self._drop_timer(key)
        self._timers[key] = (due, asyncio.get_running_loop().call_later(delay, self._add_due, key))

    def retry(self, key: Key, *, outage: bool = False) -> float:
        """Have `key` worked on again after a failure: exponential delay with jitter, short in an `outage`. Returns it."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        longest = min(FIRST_DELAY * 2.0 ** min(failures, 30), LONGEST_DELAY if outage else MAX_DELAY)
        delay = longest * (0.5 + 0.5 * self._jitter())
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """Reset the failure count of `key`."""
        self._failures.pop(key, None)

    async def get(self) -> tuple[Key, float]:
        """The next key and when it was noticed (this queue's clock). Call `done` when finished with it."""
        while not (self._urgent or self._due):
            self._wake.clear()
            await self._wake.wait()
        self._taken += 1
        lane = self._due if self._due and (not self._urgent or self._taken % FAIRNESS == 0) else self._urgent
        key = next(iter(lane))
        del lane[key]
        self._working.add(key)
        return key, self._noticed.pop(key)[0]

    def done(self, key: Key) -> None:
        """Tell that the work on `key` ended; if it was added meanwhile, it is ready again."""
        self._working.discard(key)
        if key in self._noticed:
            self._line_up(key)

    def _add_due(self, key: Key) -> None:
        self._add(key, urgent=False)

    def _add(self, key: Key, *, urgent: bool) -> None:
        self._drop_timer(key)
        since, before = self._noticed.get(key, (self._clock(), False))
        self._noticed[key] = (since, urgent or before)
        if key not in self._working:
            self._line_up(key)

    def _line_up(self, key: Key) -> None:
        if self._noticed[key][1]:
            self._due.pop(key, None)
            self._urgent[key] = None
        else:
            self._due[key] = None
        self._wake.set()

    def _drop_timer(self, key: Key) -> None:
        if timer := self._timers.pop(key, None):
            timer[1].cancel()
