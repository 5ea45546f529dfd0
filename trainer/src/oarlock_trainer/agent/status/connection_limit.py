"""Who may be connected at once: a fixed number of places, shared out so that no client can keep the others out.

Nobody is turned away at the door. Where all places are taken, the address that holds the most of them loses the one that
it has held for longest. A client that says what it wants and goes is done within milliseconds; one that dawdles, on
however many connections, gives way to everybody who comes after it.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Places(Generic[Connection]):
    """Connections by the address that they come from. Any thread may call."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._taken: dict[Connection, str] = {}

    def enter(self, connection: Connection, address: str) -> Connection | None:
        """Give a place to a connection; returns the one that loses its own for it, which the caller is to close."""
        with self._lock:
            self._taken[connection] = address
            if len(self._taken) <= self._number:
                return None
            held = Counter(self._taken.values())
            most = max(held.values())
            loser = next(one for one, its in self._taken.items() if held[its] == most)
            del self._taken[loser]
            return loser

    def leave(self, connection: Connection) -> None:
        """The connection is over. May be called again, and for one that has lost its place."""
        with self._lock:
            self._taken.pop(connection, None)
