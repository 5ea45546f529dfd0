"""Bytes of large answers, within one bound: those that are read or sent now, and those that are kept to be sent again.

A pod has so much memory, a picture of 32 MiB that is read stands there twice, and an output's story ten times. Who finds no
room waits a little; what is kept gives way to what is read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from oarlock.errors import NotNowError
from oarlock.web.busy import BusyError

MOST_BYTES = 192 * 2**20
"""Of all. The chart gives the pod 512 MiB; lists, logs and Python itself had 110 MiB with ten viewers (docs/page.md)."""
MOST_KEPT = 64 * 2**20
EACH = 4
"""One person has a part of all in so many, or one answer alone: who takes his pictures slowly keeps no others from theirs."""
WAIT_SECONDS = 3.0
"""For others' end: so long a thread of the server stands still. Less than storage waits for its own."""


class Budget:
    """Used by any thread."""

    def __init__(self, most: int = MOST_BYTES, *, most_kept: int = MOST_KEPT) -> None:
        self._most, self._most_kept = most, most_kept
        self._changed = threading.Condition()
        self._taken = self._kept_bytes = 0
        self._of: Counter[str] = Counter()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    @property
    def used(self) -> int:
        """Bytes that are taken or kept; never more than the bound."""
        with self._changed:
            return self._taken + self._kept_bytes

    def share(self, person: str = "") -> Share:
        """A share of nothing yet. `person`: who it is for; empty where it is for all, as a job's output is."""
        return Share(self, person)

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Keep what somebody may ask for again, as long as there is room; what was asked for longest ago goes first."""
        with self._changed:
            self._drop(key)
            if size > min(self._most_kept, self._most - self._taken):
                return
            while self._kept_bytes + size > self._most_kept:
                self._drop(next(iter(self._kept)))
            self._make_room(size)
            self._kept[key] = value, size
            self._kept_bytes += size

    def kept(self, key: Hashable) -> Any:
        """What was kept, None where it is not there any more."""
        with self._changed:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def forget(self, gone: Callable[[Hashable], bool]) -> None:
        """Keep nothing of which `gone` says so of its key."""
        with self._changed:
            for key in [key for key in self._kept if gone(key)]:
                self._drop(key)

    def close(self) -> None:
        """Keep nothing."""
        with self._changed:
            self._kept.clear()
            self._kept_bytes = 0

    def resize(self, share: Share, size: int) -> None:
        """As Share.resize."""
        with self._changed:
            more = size - share.size
            if more > self._most:
                raise NotNowError(
                    f"this takes {more >> 20} MiB of memory, and the page's server has {self._most >> 20} MiB for all: "
                    "look at it in the job's output"
                )
            if more > 0:
                if not self._changed.wait_for(lambda: share.released or self._fits(share, size), WAIT_SECONDS):
                    who = "others read" if self._may_have(share, size) else "you read"
                    raise BusyError(f"{who} large files just now: try again in some seconds")
                if share.released:
                    raise BusyError("nobody waits for this any more")
                self._make_room(more)
            self._taken += more
            self._of[share.person] += more
            if not self._of[share.person]:
                del self._of[share.person]
            share.size = size
            self._changed.notify_all()

    def release(self, share: Share) -> None:
        """As Share.release."""
        with self._changed:
            share.released = True
            self.resize(share, 0)

    def _fits(self, share: Share, size: int) -> bool:
        return self._taken - share.size + size <= self._most and self._may_have(share, size)

    def _may_have(self, share: Share, size: int) -> bool:
        """Whether its person may have as much, beside what he has."""
        besides = self._of[share.person] - share.size if share.person else 0
        return not besides or besides + size <= self._most // EACH

    def _make_room(self, size: int) -> None:
        while self._kept and self._taken + self._kept_bytes + size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        self._kept_bytes -= self._kept.pop(key, (None, 0))[1]


class Share:
    """What one answer takes of a budget: nothing at first. Used by any thread."""

    def __init__(self, budget: Budget, person: str) -> None:
        self._budget, self.person = budget, person
        self.size, self.released = 0, False

    def resize(self, size: int) -> None:
        """Take so many bytes instead of those before.

        Raises BusyError where others have them, or its person has much already, or where it was released: by whoever did not
        wait for a thread that hung. And NotNowError where there are never so many.
        """
        self._budget.resize(self, size)

    def release(self) -> None:
        """Give all back, for good. May be called again."""
        self._budget.release(self)
