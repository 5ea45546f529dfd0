"""A data set's scan beside its caches, where a job with another output finds it: who trains reads no header again.

    scans/<recipe>.json    the parts of the data set in their order, and its rows that are left out, from 0 on
    scans/<part>.arrow     the parts themselves

The recipe is the fingerprint of all settings that a scan depends on, so that a scan of others is never taken. The parts
come first and the file that names them last.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from oarlock_trainer.data.metadata.dataset_parts import DatasetParts
from oarlock_trainer.data.metadata.facts import parse_facts
from oarlock_trainer.data.metadata.table import PARTS, part_notes
from oarlock_trainer.runtime.atomic_write import write_bytes
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.storage.files import Files

FOLDER = "scans"
_VERSION = 1
_PART = re.compile(r"[0-9A-Za-z_-]+\.arrow")


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
