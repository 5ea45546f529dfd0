"""Messages that wait for one receiver: bounded, in order, and the least important goes first when it is full. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_api.contract.webhooks import WebhookLevel

SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """One message as it will be sent, but for the headers of the moment."""

    type: str
    level: WebhookLevel
    body: bytes


class Outbox:
    """The messages that wait. Not thread-safe: its owner has the lock."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._waiting: list[QueuedMessage] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: QueuedMessage) -> QueuedMessage | None:
        """Add a message at the end. Returns what had to go for it: the oldest of the least level, maybe itself."""
        self._waiting.append(message)
        if len(self._waiting) <= self._size:
            return None
        least = min(self._waiting, key=lambda one: one.level.weight)  # min keeps the earliest of equals
        self._waiting.remove(least)
        return least

    def take(self, *, most_important: bool = False) -> QueuedMessage:
        """Remove the oldest, or the oldest of the highest level where time for all may be lacking."""
        chosen = max(self._waiting, key=lambda one: one.level.weight) if most_important else self._waiting[0]
        self._waiting.remove(chosen)
        return chosen
