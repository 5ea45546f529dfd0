"""What turns the link's one thread: descriptors, time that really was watched, and the news that goes to the agent.

Silence is counted on AwakeClock alone: a process that was stopped, or a machine that was paused, must not blame its
peers for its own sleep. What arrived meanwhile is always read before anybody's silence is judged.
"""

from __future__ import annotations

import selectors
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from oarlock_trainer.agent.link.protocol import Leave, News, PeerLost
from oarlock_trainer.runtime.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable


class Role(Protocol):
    """Rank 0's side of the link, or a member's."""

    over: bool
    """Nothing is left to do: the thread ends."""

    def turn(self) -> float:
        """Do what is due; returns the seconds until it wants its next turn at the latest."""

    def leave(self, last: Leave) -> None:
        """Start to leave: tell the others, and be over soon."""

    def close(self) -> None:
        """Close every socket."""


class AwakeClock:
    """Seconds that its loop was running. `longest` counts for one turn at most, however long it took."""

    def __init__(self, now: float, *, longest: float) -> None:
        self.seconds = 0.0
        self._looked_at = now
        self._longest = longest

    def advance(self, now: float) -> None:
        """Count the turn that ends now."""
        self.seconds += min(max(now - self._looked_at, 0.0), self._longest)
        self._looked_at = now


class Loop:
    """The thread's state. Only news(), do(), `cause` and the notifiers may be touched from other threads."""

    def __init__(self, *, heartbeat: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.selector = selectors.DefaultSelector()
        self.orders_notifier = Notifier()
        self.news_notifier = Notifier()
        self._monotonic = clock
        self._clock = AwakeClock(clock(), longest=heartbeat)
        self._orders: deque[Callable[[], None]] = deque()
        self._news: deque[News] = deque()
        self._newest: dict[int | type, News] = {}
        """By who says it, or what it is of nobody's."""
        self._lock = threading.Lock()
        self.cause: PeerLost | None = None
        """The loss that was told."""
        self.selector.register(
            self.orders_notifier.descriptor, selectors.EVENT_READ, lambda _events: self.orders_notifier.clear()
        )

    @property
    def now(self) -> float:
        """Seconds on the clock that silence is judged by."""
        return self._clock.seconds

    def run(self, role: Role) -> None:
        """Turn until the role is over."""
        wait = 0.0
        while not role.over:
            events = self.selector.select(wait)
            self._clock.advance(self._monotonic())
            for key, mask in events:
                key.data(mask)
            while self._orders:
                self._orders.popleft()()
            wait = role.turn()

    def do(self, order: Callable[[], None]) -> None:
        """Have the thread do something, soon. From any thread."""
        self._orders.append(order)
        self.orders_notifier.notify()

    def tell(self, news: News) -> None:
        """Tell the agent. Of lost peers only the first is news: all others follow from it."""
        if isinstance(news, PeerLost):
            if self.cause:
                return
            self.cause = news
        self._news.append(news)
        self.news_notifier.notify()

    def tell_newest(self, of: int | type, news: News) -> None:
        """Tell what takes the place of all that was told `of` the same before, if that was not taken yet."""
        with self._lock:
            self._newest[of] = news
        self.news_notifier.notify()

    def forget_newest(self, of: int) -> None:
        """What was told `of` it and not taken yet is not so any more."""
        with self._lock:
            self._newest.pop(of, None)

    def news(self) -> list[News]:
        """What was told since the last call. Never blocks."""
        self.news_notifier.clear()
        with self._lock:
            newest, self._newest = self._newest, {}
        return [*(self._news.popleft() for _ in range(len(self._news))), *newest.values()]
