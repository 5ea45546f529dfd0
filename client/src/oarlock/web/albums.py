"""The pictures of jobs, as a caller sees them: from rank 0's pod by his own request, or from an output that is mounted here.

What was read once is kept for a while, for this caller alone: a gallery asks for one index and many thumbnails. What is
kept is shown only as long as the caller's own request for the index was allowed a minute ago at most, or, where its source
does not answer, as the API server says that he still may (rights.py). How much is read at once and kept, of all albums
together, is the budget's (budget.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from oarlock.errors import ForbiddenError, NotFoundError, OarlockError
from oarlock.leader import Admit
from oarlock.report.pictures import Picture, listed
from oarlock.web.asked import Asked
from oarlock.web.budget import Budget, Share
from oarlock.web.busy import BusyError
from oarlock_api.contract.beneath import Beneath, beneath
from oarlock_api.contract.pictures import FOLDER, INDEX, MOST_INDEX, MOST_PICTURE, THUMBNAILS, is_picture, kind
from oarlock_api.contract.regular_file import open_regular

INDEX_SECONDS, RIGHTS_SECONDS = 10.0, 60.0
MOST_ALBUMS, MOST_OF_ONE_PERSON = 128, 4
MOST_THUMBNAIL = 2**20
"""Bytes of one that is kept: ten times what one has."""
AT_ONCE = 3
"""Pictures that one person reads; an agent gives four, and others look, too."""
PICTURE_COPIES = 2
"""A picture is gathered from pieces, and then made one."""
INDEX_COPIES, KEPT_COPIES = 24, 8
"""Memory for each byte of an index, while it is understood and afterwards. An honest one takes 6 and 2; the densest
JSON, empty objects, 24."""
T = TypeVar("T")
Steps = Sequence[tuple[Picture, ...]]


class Source(Protocol):
    """Where pictures come from, such as a Leader."""

    def pictures(self, admit: Admit) -> str:
        """The index; empty where there is none. Raises OarlockError."""

    def picture(self, file: str, admit: Admit) -> tuple[str, bytes]:
        """Media type and content. Raises OarlockError; NotFoundError where there is no such picture."""


class Folder:
    """Pictures of an output that is mounted here."""

    def __init__(self, output: Path | Beneath) -> None:
        self._root = beneath(output) / FOLDER

    def pictures(self, admit: Admit) -> str:
        """As Source has it."""
        with suppress(OSError):
            return _read(self._root / INDEX, MOST_INDEX, admit).decode(errors="replace")
        return ""

    def picture(self, file: str, admit: Admit) -> tuple[str, bytes]:
        """As Source has it."""
        content = b""
        with suppress(OSError):
            if is_picture(file):
                content = _read(self._root / file, MOST_PICTURE, admit)
        media_type = kind(content)
        if media_type is None:
            raise NotFoundError(f"the output has no picture {file[:80]!r}")
        return media_type, content


@dataclass(frozen=True, slots=True)
class Shown:
    """What a gallery shows. Where that is not what there is now, `trouble` says why, and `time` of when it is."""

    steps: Steps
    time: datetime
    trouble: str = ""


class Album:
    """One caller's pictures of one job. Any thread may ask."""

    def __init__(self, find: Callable[[], Source], uid: str, budget: Budget, *, person: str = "") -> None:
        """`find` gives the source, or raises OarlockError where there is none now; `uid` is the job's, `person` who looks."""
        self._find, self._uid, self._budget, self._person = find, uid, budget, person
        self._asked: Asked[Shown] = Asked()
        self._source: Source | None = None

    def shown(self, within: float = INDEX_SECONDS) -> Shown:
        """All pictures that can be shown, by step, as they were so many seconds ago at most. Raises OarlockError."""
        return self._asked.answer(self._budget.kept(self), within, self._read)

    def forget(self) -> None:
        """Keep nothing of it."""
        self._budget.forget(lambda key: key is self or (isinstance(key, tuple) and key[0] is self))

    def last(self, check: Callable[[], None]) -> Shown:
        """As `shown`; where that fails, but is not forbidden, the last ones. Raises OarlockError.

        `check` raises ForbiddenError where the caller has lost the right to them since.
        """
        try:
            return self.shown(INDEX_SECONDS)
        except ForbiddenError:
            raise
        except OarlockError as error:
            kept: Shown | None = self._budget.kept(self)
            if kept is None:
                raise
            if self._asked.age >= RIGHTS_SECONDS:
                check()
            return Shown(kept.steps, kept.time, str(error))

    def picture(self, file: str, check: Callable[[], None]) -> tuple[str, bytes, Share]:
        """Media type, content, and what it takes of the budget until that is released by whoever has sent it.

        Instead of a thumbnail that is not there, the picture itself; what is kept also where `last` shows the last ones.
        Raises OarlockError.
        """
        share, kept = self._budget.share(self._person), self._budget.kept((self, file))
        try:
            self.shown(RIGHTS_SECONDS)
        except ForbiddenError:
            raise
        except OarlockError:
            if kept is None:
                raise
            check()
        if kept:
            return *kept, share
        if error := self._asked.error:
            raise error  # of each picture of a gallery its source would be asked again
        try:
            found, small = self._picture(file, lambda size: share.resize(PICTURE_COPIES * size))
            share.resize(len(found[1]))
        except BaseException:
            share.release()
            raise
        if small:
            self._budget.keep((self, file), found, len(found[1]))
        return *found, share

    def _picture(self, file: str, admit: Admit) -> tuple[tuple[str, bytes], bool]:
        """And whether it is one to keep."""
        is_thumbnail = f"/{THUMBNAILS}/" in file
        try:
            found = self._ask(lambda source: source.picture(file, admit))
        except NotFoundError:
            if not is_thumbnail:
                raise
            return self._ask(lambda source: source.picture(_original(file), admit)), False
        return found, is_thumbnail and len(found[1]) <= MOST_THUMBNAIL

    def _read(self) -> Shown:
        share = self._budget.share(self._person)
        try:
            index = self._ask(lambda source: source.pictures(lambda size: share.resize(INDEX_COPIES * size)))
            steps = (tuple(one for one in step if is_picture(one.source)) for step in listed(index, self._uid))
            shown = Shown([step for step in steps if step], datetime.now(UTC))
        finally:
            share.release()
        self._budget.keep(self, shown, KEPT_COPIES * len(index))
        return shown

    def _ask(self, question: Callable[[Source], T]) -> T:
        """Of the source that answered last; where that does not any more, of the one that there is now."""
        if before := self._source:
            try:
                return question(before)
            except (ForbiddenError, NotFoundError, BusyError):
                raise
            except OarlockError:
                self._source = None  # another attempt has another pod
        source = self._find()
        answer = question(source)
        self._source = source
        return answer


class Albums:
    """Those that were looked at last. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, Hashable], Album] = OrderedDict()

    def of(self, person: str, caller: str, job: Hashable, make: Callable[[], Album]) -> Album:
        """A caller's album of a job. Of one person, who may be several callers, a few are kept."""
        key = person, caller, job
        with self._lock:
            album = self._kept.pop(key, None) or make()
            self._kept[key] = album
            own = [one for one in self._kept if one[0] == person]
            if len(own) > MOST_OF_ONE_PERSON or len(self._kept) > MOST_ALBUMS:
                oldest = own[0] if len(own) > MOST_OF_ONE_PERSON else next(iter(self._kept))
                self._kept.pop(oldest).forget()
            return album

    def close(self) -> None:
        """Forget them."""
        self._kept.clear()


def _read(file: Beneath, most: int, admit: Admit) -> bytes:
    with open_regular(file) as (opened, size):
        admit(min(size, most))
        return opened.read(min(size, most))


def _original(thumbnail: str) -> str:
    folder, _, name = thumbnail.rpartition(f"/{THUMBNAILS}/")
    return f"{folder}/{name.removesuffix('.jpg')}.png"
