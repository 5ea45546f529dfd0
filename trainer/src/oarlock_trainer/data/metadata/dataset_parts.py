"""Parts of the published table that a new scan takes over: those of data sets with preserveScan and the same settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.data.metadata.build_parts import facts_of
from oarlock_trainer.data.metadata.table import TablePart, open_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.data.metadata.recipe import Recipe
    from oarlock_trainer.data.metadata.table import TableManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetParts:
    """One data set of an earlier table: files and rows of its parts, and its rows that were left out, from 0 on."""

    files: tuple[tuple[str, int], ...]
    left_out: tuple[int, ...]

    def parts(self, dataset: int) -> tuple[TablePart, ...]:
        """The parts, as those of a data set of this job."""
        return tuple(TablePart(file=file, dataset=dataset, rows=rows) for file, rows in self.files)


def reusable_parts(folder: Path, recipes: Sequence[Recipe]) -> dict[int, DatasetParts]:
    """What is taken over, by the data set's place in this job."""
    wanted = {recipe.fingerprint(): number for number, recipe in enumerate(recipes) if recipe.dataset.preserve_scan}
    table = open_table(folder) if wanted else None
    if table is None:
        return {}
    manifest = table.manifest
    kept: dict[int, DatasetParts] = {}
    for own in by_dataset(manifest):
        number = wanted.get(facts_of(folder, own.files[0][0]).recipe) if own.files else None
        if number is not None:
            kept[number] = own
    return kept


def by_dataset(manifest: TableManifest) -> list[DatasetParts]:
    """A table's parts by data set, in the table's order."""
    found = []
    first = 0
    for dataset in range(len(manifest.datasets)):
        files = tuple((part.file, part.rows) for part in manifest.parts if part.dataset == dataset)
        rows = sum(rows for _, rows in files)
        left_out = tuple(row - first for row in manifest.left_out if first <= row < first + rows)
        found.append(DatasetParts(files=files, left_out=left_out))
        first += rows
    return found
