"""What a job took of which place, kept in its output: so that a restart needs no answer about what the node has already.

A hub's commit never changes: a job that took one asks no more. A store is asked each time, and what it had before counts
where it does not answer.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.models.source_kinds import Listing
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_json
from oarlock_trainer.runtime.errors import StorageError, storage
from oarlock_trainer.storage.files import FileEntry

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.models.source_kinds import Source
    from oarlock_trainer.runtime.job import Job


def listing_of(source: Source, job: Job) -> Listing:
    """What is to be taken of a source, by one rank for all.

    Raises ConfigurationError where there is no model, and StorageError where the place does not answer and nothing was
    taken there before.
    """
    note = job.output / PRIVATE / f"{source.field}.json"
    whose = {"job": job.file.job_uid, "place": source.place}
    taken = _read(note, whose)
    if taken and source.is_fixed:
        return taken
    try:
        listing = source.list()
    except StorageError as error:
        if taken is None:
            raise
        channel.tell(f"{error}; going on with what was there before: a node that has it all needs no more")
        return taken
    if listing != taken:
        with storage(f"writing {note}"):
            write_json(note, whose | asdict(listing))
    return listing


def _read(note: Path, whose: dict[str, str]) -> Listing | None:
    with storage(f"reading {note}"):
        said: dict[str, Any] = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else {}
    if not whose.items() <= said.items():
        return None
    return Listing(said["version"], tuple(FileEntry(**entry) for entry in said["entries"]))
