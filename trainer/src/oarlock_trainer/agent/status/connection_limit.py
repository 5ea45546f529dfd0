"""How many connections may be open at once, so that no client can keep the others out.

A new connection is always admitted. Where the limit is reached, the address with the most connections loses its oldest one.
A client that sends its request and reads the answer is done within milliseconds; a slow one, on however many connections,
gives way to all that come after it.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class ConnectionLimit(Generic[Connection]):
    """Open connections by the address that they come from. Any thread may call."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._open: dict[Connection, str] = {}

    def admit(self, connection: Connection, address: str) -> Connection | None:
        """Count a new connection; returns the one that loses its place to it, which the caller is to close."""
        with self._lock:
            self._open[connection] = address
            if len(self._open) <= self._number:
                return None
            held = Counter(self._open.values())
            most = max(held.values())
            loser = next(one for one, its in self._open.items() if held[its] == most)
            del self._open[loser]
            return loser

    def release(self, connection: Connection) -> None:
        """The connection is over. May be called again, and for one that has lost its place."""
        with self._lock:
            self._open.pop(connection, None)
