"""Pieces of a data set made into parts of the table, each once: what an earlier attempt made is taken as it is.

With maxSamples at most so many pictures of a data set stay, chosen by seed and name: adding pictures changes few choices.
Every name draws a lot, and the lowest ones are taken. Each rank knows the lots of its own parts alone, so the highest lot
that is taken is found in two rounds: first how many there are in each of 65,536 bins, then the lots of one bin.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.facts import Facts, facts_of, total
from oarlock_trainer.data.metadata.rows import make_rows
from oarlock_trainer.data.metadata.table import open_part, part_notes, write_part
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from oarlock_trainer.data.metadata.pieces import Pieces
    from oarlock_trainer.data.metadata.recipe import Recipe
    from oarlock_trainer.data.metadata.rows import PictureRows

BINS = 1 << 16
_SHIFT = np.uint64(48)


@dataclass(frozen=True, slots=True, order=True)
class BuiltPart:
    """One part: the number of its piece, its file and rows."""

    number: int
    file: str
    rows: int


def part_file(recipe: str, identity: str) -> str:
    """A part's name says what it was made from: one of that name need not be made again."""
    return f"{keys.digest(recipe, identity)}.arrow"


def make_parts(
    pieces: Pieces, groups: Sequence[int], recipe: Recipe, folder: Path, *, on: Callable[[int], None]
) -> list[BuiltPart]:
    """Make the parts of some groups of pieces below `folder`; `on` is told of pictures that were looked at."""
    fingerprint = recipe.fingerprint()
    made = []
    for group in groups:
        missing = {}
        for number in pieces.groups[group]:
            file = part_file(fingerprint, pieces.pieces[number].identity)
            notes = part_notes(folder, file)
            if notes is None:
                missing[number] = file
            else:
                made.append(BuiltPart(number, file, notes[0]))
                on(pieces.pieces[number].pictures)
        if missing:
            made += _make_missing(pieces.read(group, list(missing), on), missing, recipe, folder)
    return made


def _make_missing(
    pieces: Iterable[tuple[int, PictureRows]], files: Mapping[int, str], recipe: Recipe, folder: Path
) -> list[BuiltPart]:
    """One part is written while the next one is read: waiting for the storage takes as long as the work."""
    made = []
    with ThreadPoolExecutor(1, thread_name_prefix="parts") as writer:
        writing: Future[None] | None = None
        for number, found in pieces:
            columns, facts = make_rows(found, recipe)
            made.append(BuiltPart(number, files[number], len(columns["name"])))
            if writing:
                writing.result()
            writing = writer.submit(_write, folder, files[number], columns, facts)
        if writing:
            writing.result()
    return made


def _write(folder: Path, file: str, columns: Mapping[str, Any], facts: Facts) -> None:
    with storage("writing the metadata table"):
        write_part(folder, file, columns, notes=facts.to_json())


def lots_of(folder: Path, made: BuiltPart, seed: int) -> np.ndarray:
    """(rows,) uint64: the lots that the pictures of a part draw."""
    return keys.lots(open_part(folder, made.file)["name"], seed=seed, purpose="take")


def binned(lots: Sequence[np.ndarray]) -> np.ndarray:
    """(BINS,) int64: how many lots there are in each bin."""
    bins = np.zeros(BINS, dtype=np.int64)
    for some in lots:
        bins += np.bincount((some >> _SHIFT).astype(np.int64), minlength=BINS)
    return bins


def bin_of(bins: np.ndarray, maximum: int) -> tuple[int, int]:
    """The bin that the `maximum`-th lowest lot lies in, and its place among those of the bin, from 1 on."""
    ends = np.cumsum(bins)
    number = int(np.searchsorted(ends, maximum))
    return number, maximum - int(ends[number] - bins[number])


def within(lots: Sequence[np.ndarray], number: int) -> np.ndarray:
    """The lots of one bin, sorted."""
    empty = np.empty(0, dtype=np.uint64)
    return np.sort(np.concatenate([empty, *(some[(some >> _SHIFT) == np.uint64(number)] for some in lots)]))


def limited(folder: Path, made: BuiltPart, lots: np.ndarray, highest: int) -> BuiltPart:
    """The part with those of its pictures alone whose lot is not above `highest`."""
    file = part_file(made.file, f"lots up to {highest}")
    notes = part_notes(folder, file)
    if notes is not None:
        return replace(made, file=file, rows=notes[0])
    taken = lots <= np.uint64(highest)
    rows, left = open_part(folder, made.file).filter(pa.array(taken)), int((~taken).sum())
    facts = facts_of(folder, made.file)
    facts = replace(facts, left_out=total([facts.left_out, {"maxSamples": left}]))
    with storage("writing the metadata table"):
        write_part(folder, file, {name: rows[name] for name in rows.schema.names}, notes=facts.to_json())
    return replace(made, file=file, rows=len(rows))
