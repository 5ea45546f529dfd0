"""How many requests run at once: up to a bound, fewer while the API server says that it has too many.

Additive increase, multiplicative decrease, as TCP does: many operators, schedulers and controllers share one API server,
and who does not give way makes everybody slower. One for the whole process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oarlock_operator.kube.api_error import ApiError

T = TypeVar("T")
TOO_MANY = 429
PATIENCE = 5
"""Tries of one request before its pass gives up and is repeated, later, by the queue."""
RETRY_SECONDS = 1.0
"""What the API server itself suggests in Retry-After."""


class Throttle:
    """Runs requests, at most `most` at once. Single-threaded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many may run at once now."""
        return int(self._limit)

    async def run(self, request: Callable[[], Awaitable[T]]) -> T:
        """The answer to a request, made again where the server was too busy. Raises ApiError."""
        for patience in range(PATIENCE, 0, -1):
            await self._enter()
            try:
                answer = await request()
            except ApiError as error:
                if error.status != TOO_MANY or patience == 1:
                    raise
                self._limit = max(1.0, self._limit / 2)
            else:
                self._limit = min(float(self._most), self._limit + 1 / self._limit)
                return answer
            finally:
                self._leave()
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("unreachable")

    async def _enter(self) -> None:
        while self._running >= self.limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._running += 1

    def _leave(self) -> None:
        self._running -= 1
        free = self.limit - self._running
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1
