"""TensorBoard: one event file an attempt in `<output>/tensorboard/<run>`, where no server is needed."""

from __future__ import annotations

import errno
import re
import time
from typing import TYPE_CHECKING

from oarlock_trainer.tracking import event_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oarlock_trainer.tracking.tracker import RunFacts


def folder_of(facts: RunFacts) -> Path:
    """Where a run's files lie; TensorBoard shows the folder's name as the run's."""
    return facts.output / "tensorboard" / (re.sub(r"[^\w.-]+", "-", facts.name).strip(".") or "run")


class TensorBoardFile:
    """The event file of one attempt. What it holds is on the storage's way after each step."""

    def __init__(self, facts: RunFacts) -> None:
        """Begins a file of its own, which takes back the steps that this attempt does again. Raises OSError."""
        now = time.time()
        folder = folder_of(facts)
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads a folder's files in the order of their names, and those with tfevents in it alone.
        self._file = (folder / f"events.out.tfevents.{int(now):010d}.attempt-{facts.attempt}").open("ab", buffering=0)
        self._end = self._file.tell()
        self._append(event_records.beginning(now) + event_records.start(facts.first + 1, now))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write a step. Raises OSError."""
        self._append(event_records.scalars(step, figures, time.time()))

    def close(self, *, done: bool) -> None:  # noqa: ARG002 - a file knows no end
        """Close the file."""
        self._file.close()

    def _append(self, records: bytes) -> None:
        """Write all or nothing: nobody can read what follows half a record."""
        written = self._file.write(records)
        if written != len(records):
            self._file.truncate(self._end)
            raise OSError(errno.ENOSPC, "no room for a whole record", self._file.name)
        self._end += written
