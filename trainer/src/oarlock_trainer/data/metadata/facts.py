"""What became of the pictures: noted by the maker of each part, counted by data set, the same after any restart."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from oarlock_trainer.data.metadata.table import part_notes
from oarlock_trainer.data.quarantine import Rejected
from oarlock_trainer.runtime.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from oarlock_trainer.data.metadata.table import TableManifest

LISTED = 2_000
"""Bad pictures that a part lists by name; the counts go on. Far above what a run tolerates of one part."""


@dataclass(frozen=True, slots=True, order=True)
class Bad:
    """One picture that cannot be used. `kind` groups reasons for the count, `reason` says what was seen."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`found` pictures made rows, or were `bad` (by kind; `listed` with names), or were left out by a setting (by field).

    `recipe` is the fingerprint of the settings that the part was made by.
    """

    recipe: str
    found: int
    bad: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    listed: tuple[Bad, ...] = ()

    def to_json(self) -> str:
        """As a part's notes."""
        return json.dumps(asdict(self), ensure_ascii=False)


def parse_facts(notes: str) -> Facts:
    """Read a part's notes."""
    raw = json.loads(notes)
    return Facts(**raw | {"listed": tuple(Bad(**bad) for bad in raw["listed"])})


def facts_of(folder: Path, file: str) -> Facts:
    """What the maker of a part noted. Raises StorageError where the part is not there any more."""
    notes = part_notes(folder, file)
    if notes is None:
        raise StorageError(
            f"the metadata table's part {file} below {folder} is gone or torn: do all nodes mount one storage?"
        )
    return parse_facts(notes[1])


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts, by their names; without those that are 0."""
    added: Counter[str] = Counter()
    for one in counts:
        added.update(one)
    return {name: count for name, count in sorted(added.items()) if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of `found` pictures `rows` are in the table; the others are `bad`, by kind, or `left_out`, by the field that did it."""

    dataset: str
    found: int
    rows: int
    bad: dict[str, int]
    left_out: dict[str, int]


def counts_of(folder: Path, manifest: TableManifest) -> list[Counts]:
    """What became of the pictures, by data set."""
    counts = []
    for number, dataset in enumerate(manifest.datasets):
        parts = [part for part in manifest.parts if part.dataset == number]
        facts = [facts_of(folder, part.file) for part in parts]
        counts.append(
            Counts(
                dataset=dataset,
                found=sum(one.found for one in facts),
                rows=sum(part.rows for part in parts),
                bad=total(one.bad for one in facts),
                left_out=total(one.left_out for one in facts),
            )
        )
    return counts


def rejected_in(folder: Path, manifest: TableManifest, *, most: int) -> tuple[Rejected, ...]:
    """The first `most` pictures that cannot be used, with their reasons."""
    rejected: list[Rejected] = []
    for part in manifest.parts:
        listed = facts_of(folder, part.file).listed[: most - len(rejected)]
        dataset = manifest.datasets[part.dataset]
        rejected += [Rejected(dataset, bad.name, bad.kind, bad.reason) for bad in listed]
    return tuple(rejected)
