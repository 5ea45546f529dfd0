"""What became of the pictures of each data set, read from the notes of the table's parts: the same after any restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.data.metadata.build_parts import facts_of
from oarlock_trainer.data.metadata.facts import total
from oarlock_trainer.data.quarantine import Rejected

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.metadata.table import TableManifest


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
