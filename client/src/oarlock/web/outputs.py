"""A job's output where it is mounted here: found by what its spec says, and believed by the uid that its fence has.

It is read with the rights of the server's process. On a laptop these are the caller's own. In a cluster each mount is for the
jobs of one namespace alone, and views ask for the caller's right (rights.py); docs/decisions/0060.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from oarlock import kept_logs
from oarlock.facts.folder import NoOutputError, read_output
from oarlock.facts.model import Output
from oarlock.leader import Admit
from oarlock.logs import LogLine, Wanted
from oarlock.parts import part
from oarlock.web.albums import Folder
from oarlock.web.ask import Ask
from oarlock.web.budget import Budget
from oarlock.web.mounts import Mount
from oarlock.web.rights import Right, Rights
from oarlock.web.storage import Storage
from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.history import HISTORY, LOGS, METRICS, STORY, attempt_folder
from oarlock_api.contract.layout import OWNER, parse_owner
from oarlock_api.contract.regular_file import read_regular
from oarlock_api.contract.wire import WireError, text

MOST_OWNER = 4096
MOST_STORY, MOST_METRICS, MOST_REPORTS = 6 * 2**20, 2 * 2**20, 3 * 2**20
"""Bytes that are read of an output. 1,000 pods in 20 attempts leave 5 MiB of story."""
READ_BYTES = 128 * 2**20
"""Of the budget, while one is read: an honest one takes ten bytes for each of its own, and two are not read at once."""
ROW_BYTES, REPORT_BYTES = 1024, 8192
"""Of the budget, for each row that is kept: its story's and its figures' take 800 bytes, a report's file 4,096 at most."""
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO)
"""Nothing is there, or no regular file, as a link is none."""


@dataclass(frozen=True, slots=True)
class JobOutput:
    """A job's output. Each method reads it on the storage's own threads; it raises NotNowError where that is not possible."""

    place: Beneath
    storage: Storage
    where: str
    budget: Budget
    until: float
    """When who has found it stops waiting for what its page shows; pictures and logs may be asked for later."""

    def read(self) -> Output | None:
        """What facts have of it, read once for each change; None where it is none. Raises BusyError, too."""
        with suppress(NoOutputError):
            return replace(self._newest(), folder=self.where)
        return None

    def _newest(self) -> Output:
        changed = self.storage.read(partial(_changed, self.place), self.until)
        before, kept = self.budget.kept(self.place) or (None, None)
        if kept and before == changed:
            known: Output = kept
            return known
        return self.storage.read(partial(self._kept, changed), self.until, once=self.place)

    def _kept(self, changed: tuple[int, ...]) -> Output:
        """Read on the storage's thread to the end, and kept, also where nobody waits for it any more."""
        share = self.budget.share()
        try:
            share.resize(READ_BYTES)
            found = _read(self.place)
        finally:
            share.release()
        rows = len(found.history) + len(found.metrics)
        self.budget.keep(self.place, (changed, found), ROW_BYTES * rows + REPORT_BYTES * len(found.reports))
        return found

    def keeps_logs(self, attempt: int, job_uid: str) -> bool:
        """Whether it has any of that attempt."""
        folder = self.place / f"{HISTORY}/{LOGS}/{attempt_folder(attempt, job_uid)}"
        return self.storage.read(folder.is_dir, self.until)

    def logs(self, wanted: Wanted) -> Iterator[LogLine]:
        """Lines that it has kept, of one attempt. Raises OarlockError as kept_logs.read does."""
        return self.storage.stream(lambda: kept_logs.read(self.place, wanted))

    def pictures(self, admit: Admit) -> str:
        """As albums.Source has it."""
        return self.storage.read(partial(Folder(self.place).pictures, admit))

    def picture(self, file: str, admit: Admit) -> tuple[str, bytes]:
        """As albums.Source has it."""
        return self.storage.read(partial(Folder(self.place).picture, file, admit))


class Storages:
    """One for each mount. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Mount, Storage] = {}

    def of(self, mount: Mount) -> Storage:
        """The one of this mount."""
        with self._lock:
            return self._kept.setdefault(mount, Storage(mount.named(Beneath(mount.folder))))

    def close(self) -> None:
        """Forget them."""
        self._kept.clear()


def find_output(ask: Ask, job: Mapping[str, Any], needs: Right | None = None) -> JobOutput | None:
    """The job's output; None where it is not here, or another's.

    `needs`: what the caller has to be allowed where the server reads with rights of its own. Without it he is shown no more
    than who may list jobs. Raises ForbiddenError where he is not, and NotNowError where the storage cannot be read.
    """
    metadata = part(job, "metadata")
    for mount in ask.settings.outputs:
        if not (places := mount.places(job)):
            continue
        if mount.namespace and needs:
            ask.shelf.of(Rights).check(ask, needs, mount.namespace)
        storage = ask.shelf.of(Storages).of(mount)
        until = storage.deadline()
        if found := storage.read(partial(_owned, places, text(metadata.get("uid"), 64)), until):
            return JobOutput(found, storage, mount.named(found), ask.shelf.of(Budget), until)
    return None


def _owned(places: list[Beneath], uid: str) -> Beneath | None:
    return next((place for place in places if uid and _owner(place) == uid), None)


def _read(place: Beneath) -> Output:
    return read_output(place, most_story=MOST_STORY, most_metrics=MOST_METRICS, most_reports=MOST_REPORTS)[0]


def _changed(place: Beneath) -> tuple[int, ...]:
    """When its figures and its story were changed last."""
    found = []
    for file in (METRICS, f"{HISTORY}/{STORY}"):
        with suppress(OSError):
            found.append((place / file).stat().st_mtime_ns)
    return tuple(found)


def _owner(folder: Beneath) -> str | None:
    try:
        return parse_owner(read_regular(folder / OWNER, most=MOST_OWNER).decode(errors="replace")).job_uid
    except WireError:
        return None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
