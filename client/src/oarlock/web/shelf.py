"""What views keep between two questions, such as logs that are read: one of each kind, for as long as the server runs."""

from __future__ import annotations

import threading
from typing import Any, Protocol, TypeVar


class Kept(Protocol):
    """Something that is made without arguments, and closed when the server ends."""

    def close(self) -> None:
        """Do no more."""


T = TypeVar("T", bound=Kept)


class Shelf:
    """Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[type[Any], Any] = {}

    def of(self, kind: type[T]) -> T:
        """The one of its kind; made at the first call."""
        with self._lock:
            if kind not in self._kept:
                self._kept[kind] = kind()
            found: T = self._kept[kind]
            return found

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            for one in self._kept.values():
                one.close()
