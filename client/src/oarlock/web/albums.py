"""The pictures of jobs, as a caller sees them: from rank 0's pod by his own request, or from an output that is mounted here.

What was read once is kept for a short while, for this caller alone: a gallery asks for one index and many thumbnails. What is
kept is shown only as long as the caller's own request for the index was allowed a minute ago at most.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from oarlock.errors import NotFoundError, OarlockError
from oarlock.report.pictures import Picture, listed
from oarlock_api.contract.beneath import Beneath, beneath
from oarlock_api.contract.pictures import FOLDER, INDEX, MOST_INDEX, MOST_PICTURE, THUMBNAILS, is_picture, kind
from oarlock_api.contract.regular_file import read_regular

INDEX_SECONDS, RIGHTS_SECONDS = 10.0, 60.0
MOST_ALBUMS = 16
MOST_BYTES = 3 * 2**20
"""Of the thumbnails that are kept of an album: some eighty."""
AT_ONCE = 3
"""Pictures that one caller reads of one job; the agent gives four, and others look, too."""
T = TypeVar("T")
Steps = Sequence[tuple[Picture, ...]]


class Source(Protocol):
    """Where pictures come from, such as a Leader."""

    def pictures(self) -> str:
        """The index; empty where there is none. Raises OarlockError."""

    def picture(self, file: str) -> tuple[str, bytes]:
        """Media type and content. Raises OarlockError; NotFoundError where there is no such picture."""


class Folder:
    """Pictures of an output that is mounted here."""

    def __init__(self, output: Path | Beneath) -> None:
        self._root = beneath(output) / FOLDER

    def pictures(self) -> str:
        """As Source has it."""
        with suppress(OSError):
            return read_regular(self._root / INDEX, most=MOST_INDEX).decode(errors="replace")
        return ""

    def picture(self, file: str) -> tuple[str, bytes]:
        """As Source has it."""
        content = b""
        with suppress(OSError):
            if is_picture(file):
                content = read_regular(self._root / file, most=MOST_PICTURE)
        media_type = kind(content)
        if media_type is None:
            raise NotFoundError(f"the output has no picture {file[:80]!r}")
        return media_type, content


class Album:
    """One caller's pictures of one job. Any thread may ask."""

    def __init__(self, find: Callable[[], Source], uid: str) -> None:
        """`find` gives the source, and raises OarlockError where there is none now; `uid` is the job's."""
        self._find, self._uid = find, uid
        self._lock = threading.Lock()
        self._readers = threading.BoundedSemaphore(AT_ONCE)
        self._source: Source | None = None
        self._steps: Steps = ()
        self._read_at = -RIGHTS_SECONDS
        self._kept: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._bytes = 0

    def steps(self, within: float = INDEX_SECONDS) -> Steps:
        """All pictures that can be shown, by step, as they were so many seconds ago at most. Raises OarlockError."""
        with self._lock:
            if time.monotonic() - self._read_at >= within:
                index = self._ask(lambda source: source.pictures())
                shown = (tuple(one for one in step if is_picture(one.source)) for step in listed(index, self._uid))
                self._steps, self._read_at = [step for step in shown if step], time.monotonic()
            return self._steps

    def picture(self, file: str) -> tuple[str, bytes]:
        """Media type and content; instead of a thumbnail that is not there, the picture itself. Raises OarlockError."""
        self.steps(RIGHTS_SECONDS)
        with self._lock:
            if found := self._kept.get(file):
                self._kept.move_to_end(file)
                return found
        small = f"/{THUMBNAILS}/" in file
        with self._readers:
            try:
                found = self._ask(lambda source: source.picture(file))
            except NotFoundError:
                if not small:
                    raise
                return self._ask(lambda source: source.picture(_original(file)))
        if small:
            self._keep(file, found)
        return found

    def _ask(self, question: Callable[[Source], T]) -> T:
        source = self._source or self._find()
        try:
            answer = question(source)
        except NotFoundError:
            raise
        except OarlockError:
            self._source = None  # another attempt may have another pod
            raise
        self._source = source
        return answer

    def _keep(self, file: str, found: tuple[str, bytes]) -> None:
        with self._lock:
            self._bytes += len(found[1]) - len(self._kept.pop(file, ("", b""))[1])
            self._kept[file] = found
            while self._bytes > MOST_BYTES:
                _, (_, content) = self._kept.popitem(last=False)
                self._bytes -= len(content)


class Albums:
    """Those that were looked at last. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, Hashable], Album] = OrderedDict()

    def of(self, caller: str, job: Hashable, make: Callable[[], Album]) -> Album:
        """A caller's album of a job."""
        with self._lock:
            album = self._kept.pop((caller, job), None) or make()
            self._kept[caller, job] = album
            if len(self._kept) > MOST_ALBUMS:
                self._kept.popitem(last=False)
            return album

    def close(self) -> None:
        """Forget them."""
        self._kept.clear()


def _original(thumbnail: str) -> str:
    folder, _, name = thumbnail.rpartition(f"/{THUMBNAILS}/")
    return f"{folder}/{name.removesuffix('.jpg')}.png"
