"""Scans that are taken over: parts of data sets with preserveScan and the same settings.

They come from the job's own published table, or from beside the data set's caches, where a job with another output finds
them: who trains reads no header again.

    scans/<recipe>.json    the parts of the data set in their order, and its rows that are left out, from 0 on
    scans/<part>.arrow     the parts themselves

The recipe is the fingerprint of all settings that a scan depends on, so that a scan of others is never taken. The parts
come first and the file that names them last.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.data.metadata.facts import facts_of, parse_facts
from oarlock_trainer.data.metadata.table import PARTS, TablePart, open_table, part_notes
from oarlock_trainer.runtime.atomic_write import write_bytes
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.data.metadata.recipe import Recipe
    from oarlock_trainer.data.metadata.table import TableManifest
    from oarlock_trainer.storage.files import Files

FOLDER = "scans"
_VERSION = 1
_PART = re.compile(r"[0-9A-Za-z_-]+\.arrow")


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


def hand_on(caches: Files, recipe: str, folder: Path, kept: DatasetParts) -> None:
    """Lay a data set's scan beside its caches; what lies there already is not written again.

    `folder` has the table that the parts are of.
    """
    before = _read(caches, recipe)
    if before == kept:
        return
    there = {file for file, _ in before.files} if before else set()
    for file, _ in kept.files:
        if file not in there:
            caches.upload(f"{FOLDER}/{file}", folder / PARTS / file)
    body = {"version": _VERSION, "parts": [list(part) for part in kept.files], "leftOut": list(kept.left_out)}
    caches.write(f"{FOLDER}/{recipe}.json", json.dumps(body).encode())
    for file in there - {file for file, _ in kept.files}:
        caches.remove(f"{FOLDER}/{file}")


def reuse_scan(caches: Files, recipe: str, folder: Path) -> DatasetParts | None:
    """The scan that lies beside the caches, its parts copied below `folder`; None where there is none of these settings."""
    kept = _read(caches, recipe)
    if kept is None:
        return None
    for file, rows in kept.files:
        notes = part_notes(folder, file)
        if notes is None:
            try:
                content = caches.read(f"{FOLDER}/{file}")
            except FileNotFoundError:  # somebody is handing on a newer one
                return None
            with storage("copying the scan that lies beside the caches"):
                (folder / PARTS).mkdir(parents=True, exist_ok=True)
                write_bytes(folder / PARTS / file, memoryview(content))
            notes = part_notes(folder, file)
        if notes is None or notes[0] != rows or parse_facts(notes[1]).recipe != recipe:
            return None
    return kept


def _read(caches: Files, recipe: str) -> DatasetParts | None:
    try:
        raw = json.loads(caches.read(f"{FOLDER}/{recipe}.json"))
        if raw["version"] != _VERSION or not raw["parts"]:
            return None
        files = tuple((str(file), int(rows)) for file, rows in raw["parts"])
        left_out = tuple(int(row) for row in raw["leftOut"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return DatasetParts(files=files, left_out=left_out) if all(_PART.fullmatch(file) for file, _ in files) else None
