"""Pieces of a data set made into parts of the table, each once: what an earlier attempt made is taken as it is."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.facts import Facts, parse_facts
from oarlock_trainer.data.metadata.rows import make_rows
from oarlock_trainer.data.metadata.table import part_notes, write_part
from oarlock_trainer.runtime.errors import StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from oarlock_trainer.data.metadata.pieces import Pieces
    from oarlock_trainer.data.metadata.recipe import Recipe
    from oarlock_trainer.data.metadata.rows import PictureRows


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


def facts_of(folder: Path, file: str) -> Facts:
    """What the maker of a part noted. Raises StorageError where the part is not there any more."""
    notes = part_notes(folder, file)
    if notes is None:
        raise StorageError(
            f"the metadata table's part {file} below {folder} is gone or torn: do all nodes mount one storage?"
        )
    return parse_facts(notes[1])


def _write(folder: Path, file: str, columns: Mapping[str, Any], facts: Facts) -> None:
    with storage("writing the metadata table"):
        write_part(folder, file, columns, notes=facts.to_json())
