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
from functools import lru_cache, partial
from typing import Any

from oarlock import kept_logs
from oarlock.facts.folder import NoOutputError, read_output
from oarlock.facts.model import Output
from oarlock.leader import Admit
from oarlock.logs import LogLine, Wanted
from oarlock.rows import part
from oarlock.web.albums import Folder
from oarlock.web.ask import Ask
from oarlock.web.mounts import Mount
from oarlock.web.rights import Right, Rights
from oarlock.web.storage import Storage
from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.history import HISTORY, LOGS, METRICS, STORY, attempt_folder
from oarlock_api.contract.layout import OWNER, parse_owner
from oarlock_api.contract.regular_file import read_regular
from oarlock_api.contract.wire import WireError, text

MOST_OWNER = 4096
MOST_STORY, MOST_METRICS = 16 * 2**20, 4 * 2**20
"""Bytes that are read of an output: several are in memory at once. 1,000 pods in 20 attempts leave 5 MiB of story."""
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO)
"""Nothing is there, or no regular file, as a link is none."""


@dataclass(frozen=True, slots=True)
class JobOutput:
    """A job's output. Each method reads it on the storage's own threads; it raises NotNowError where that is not possible."""

    place: Beneath
    storage: Storage
    where: str

    def read(self) -> Output | None:
        """What facts have of it; None where it is none."""
        with suppress(NoOutputError):
            return replace(self.storage.read(partial(_newest, self.place)), folder=self.where)
        return None

    def keeps_logs(self, attempt: int, job_uid: str) -> bool:
        """Whether it has any of that attempt."""
        return self.storage.read((self.place / f"{HISTORY}/{LOGS}/{attempt_folder(attempt, job_uid)}").is_dir)

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
        if found := storage.read(partial(_owned, places, text(metadata.get("uid"), 64))):
            return JobOutput(found, storage, mount.named(found))
    return None


def _owned(places: list[Beneath], uid: str) -> Beneath | None:
    return next((place for place in places if uid and _owner(place) == uid), None)


def _newest(place: Beneath) -> Output:
    changed = tuple(_changed(place / name) for name in (METRICS, f"{HISTORY}/{STORY}"))
    return _read(place, changed)


@lru_cache(maxsize=4)
def _read(place: Beneath, _: tuple[int, ...]) -> Output:
    """Once for each change of its figures or its story."""
    return read_output(place, most_story=MOST_STORY, most_metrics=MOST_METRICS)[0]


def _changed(file: Beneath) -> int:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return 0


def _owner(folder: Beneath) -> str | None:
    try:
        return parse_owner(read_regular(folder / OWNER, most=MOST_OWNER).decode(errors="replace")).job_uid
    except WireError:
        return None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
