"""One list of the API, as it is now: read once, then told by a watch. It knows no callers; hub.py says as whom it asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

from oarlock.cluster import Cluster, Lines
from oarlock.errors import NoClusterError, RefusedError
from oarlock.facts.cluster import trimmed
from oarlock.parts import part

PAGE = "100"
"""Objects of one answer: as JSON they need ten times the memory of what is kept of them."""
MOST_OBJECTS = 5000
"""Of one list; a trimmed job has some 10 KiB. Whoever has more looks at one namespace."""
GONE = 410
_versions = count(1)
Json = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name of an object."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A list of the API: its path without a query, selectors as kubectl has them, and what is kept of each object."""

    path: str
    labels: str = ""
    fields: str = ""
    keep: Callable[[Json], Any] = trimmed

    def query(self) -> dict[str, str | None]:
        """The selectors, as parameters of a request."""
        return {"labelSelector": self.labels or None, "fieldSelector": self.fields or None}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was kept of all objects, by namespace and name, in that order.

    No two contents of any list have the same `version`. `trouble` says why this may be old; empty while a watch runs.
    """

    objects: Mapping[Key, Any]
    version: int
    trouble: str = ""


class StaleError(Exception):
    """The API server has forgotten where the watch stood: the list has to be read again."""


class Feed:
    """Read by any thread; loaded and followed by one at a time. `changed` is called after each change."""

    def __init__(self, watched: Watched, changed: Callable[[], None]) -> None:
        self.watched = watched
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[Key, Any] = {}
        self._place = ""  # the resourceVersion that is known
        self._trouble = ""
        self._version = next(_versions)
        self._snapshot: Snapshot | None = None
        self._lines: Lines | None = None
        self._ended = False

    @property
    def loaded(self) -> bool:
        """Whether the list was read, and a watch can go on from there."""
        return bool(self._place)

    def snapshot(self) -> Snapshot:
        """What is known now."""
        with self._lock:
            if self._snapshot is None:
                ordered = dict(sorted(self._objects.items()))
                self._snapshot = Snapshot(MappingProxyType(ordered), self._version, self._trouble)
            return self._snapshot

    def load(self, cluster: Cluster) -> None:
        """Read the whole list. Raises OarlockError."""
        found: dict[Key, Any] = {}
        after: str | None = None
        while True:
            page = cluster.get(self.watched.path, limit=PAGE, **{"continue": after}, **self.watched.query())
            for one in page.get("items") or []:
                found[_key(one)] = self.watched.keep(one)
            metadata = part(page, "metadata")
            after = metadata.get("continue")
            if len(found) > MOST_OBJECTS or (after and len(found) >= MOST_OBJECTS):
                raise RefusedError(
                    f"{self.watched.path} has more than {MOST_OBJECTS:,} objects: look at one namespace instead"
                )
            if not after:
                break
        with self._lock:
            self._objects = found
            self._place = str(metadata.get("resourceVersion") or "0")
            self._touch()
        self._changed()

    def follow(self, cluster: Cluster, *, seconds: int) -> None:
        """Watch for so long. Raises StaleError, and OarlockError where it breaks off or is refused."""
        query = {
            **self.watched.query(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._place,
            "timeoutSeconds": str(seconds),
        }
        with cluster.lines(self.watched.path, seconds + 10.0, **query) as lines:
            self._lines = lines
            try:
                self.tell("")
                if self._ended:
                    return
                for line in lines:
                    self._apply(line)
            finally:
                self._lines = None

    def tell(self, trouble: str) -> None:
        """Say why what is known may be old; nothing where it is not."""
        with self._lock:
            if self._trouble == trouble:
                return
            self._trouble = trouble
            self._touch()
        self._changed()

    def forget_place(self) -> None:
        """Have the list read again."""
        self._place = ""

    def end(self) -> None:
        """Have follow return now."""
        self._ended = True
        if lines := self._lines:
            lines.end()

    def _apply(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            what = part(event, "object")
            kind = event.get("type")
        except (ValueError, RecursionError, AttributeError) as error:
            raise StaleError from error  # torn, or longer than a line may be
        if kind == "ERROR":
            if what.get("code") == GONE:
                raise StaleError
            raise NoClusterError(f"the watch of {self.watched.path} ended: {what.get('message')}")
        place = part(what, "metadata").get("resourceVersion")
        with self._lock:
            self._place = str(place or self._place)
            if kind in {"ADDED", "MODIFIED"}:
                key, kept = _key(what), self.watched.keep(what)
                if self._objects.get(key) == kept:
                    return  # what has changed of it is nothing that is kept
                self._objects[key] = kept
            elif kind != "DELETED" or self._objects.pop(_key(what), None) is None:
                return  # a bookmark
            if len(self._objects) > MOST_OBJECTS:
                raise StaleError
            self._touch()
        self._changed()

    def _touch(self) -> None:
        self._version = next(_versions)
        self._snapshot = None


def _key(one: Json) -> Key:
    metadata = part(one, "metadata")
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
