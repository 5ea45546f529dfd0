"""Threads in which views are drawn: so many in all, so many for one person. Who waits for one holds none.

An answer may take as long as a pod or an API server lets it wait. What asks pods has threads of its own, so that a pod that
does not answer delays no list; and nobody takes those of all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from oarlock.web.access.caller import Caller
from oarlock.web.busy import BusyError

MOST_WAITING = 128
"""Questions of one person that run or wait; a browser asks six at once."""
T = TypeVar("T")


@dataclass(slots=True)
class _Share:
    limiter: CapacityLimiter
    asked: int = 0


class Lane:
    """Used on the event loop."""

    def __init__(self, threads: int, *, each: int) -> None:
        """`each`: threads that one person may have at once."""
        self._threads, self._each = CapacityLimiter(threads), each
        self._shares: dict[str, _Share] = {}

    async def run(self, caller: Caller, call: Callable[[], T]) -> T:
        """What a call on a thread gives. Raises what it raises, and BusyError where this person asks too much at once."""
        share = self._shares.setdefault(caller.person, _Share(CapacityLimiter(self._each)))
        if share.asked >= MOST_WAITING:
            raise BusyError(f"{MOST_WAITING} of your questions wait for an answer already: try again in a minute")
        share.asked += 1
        try:
            async with share.limiter:
                return await to_thread.run_sync(call, limiter=self._threads)
        finally:
            share.asked -= 1
            if not share.asked:
                del self._shares[caller.person]
