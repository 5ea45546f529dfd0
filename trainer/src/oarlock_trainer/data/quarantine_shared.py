"""Bad pictures that ranks meet while they train, counted together without a word between them.

    <output>/.oarlock/quarantine/attempt-<n>-rank-<n>.jsonl

Each rank writes a file of its own, and reads those of all ranks of its attempt when it has met one more. So whoever meets
the first picture too many ends the job, which is as bounded as a scan's.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.data.metadata.facts import total
from oarlock_trainer.data.quarantine import Rejected, check_bound, kinds, summary
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class SharedQuarantine:
    """What one rank of an attempt leaves out. `before` counts by kind what the scan left out of `pictures` in all."""

    def __init__(self, output: Path, *, attempt: int, rank: int, pictures: int, before: Mapping[str, int]) -> None:
        self._folder = output / PRIVATE / "quarantine"
        self._attempt = f"attempt-{attempt}-rank-"
        self._path = self._folder / f"{self._attempt}{rank}.jsonl"
        self._pictures = pictures
        self._before = before
        self._own: list[Rejected] = []

    def add(self, rejected: Sequence[Rejected]) -> None:
        """List pictures and tell of them. Raises ConfigurationError where more are bad than may be."""
        lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in rejected]
        with storage(f"listing a picture that cannot be used in {self._path}"):
            self._folder.mkdir(parents=True, exist_ok=True)
            # What an earlier process of this attempt left is found again where it is still bad.
            with self._path.open("a" if self._own else "w", encoding="utf-8") as file:
                file.writelines(lines)
            self._own += rejected
            together = self._together()
        channel.send(channel.Event.NOTE, message=summary(self._own, count=len(together)))
        counts = total([self._before, kinds(together)])
        check_bound(together, pictures=self._pictures, listed_in=self._folder, counts=counts)

    def _together(self) -> list[Rejected]:
        """Each picture once, whichever ranks have met it."""
        found = set(self._own)
        for path in self._folder.glob(f"{self._attempt}*.jsonl"):
            # A line that its rank has not ended yet is counted by whoever looks next.
            whole = path.read_bytes().rpartition(b"\n")[0]
            found.update(Rejected(**json.loads(line)) for line in whole.split(b"\n") if line)
        return sorted({(item.dataset, item.name): item for item in found}.values())
