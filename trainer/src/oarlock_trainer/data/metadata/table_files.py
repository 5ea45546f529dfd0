"""Metadata from a file of the user's: rows of a .parquet, or lines of a .jsonl with the same names as columns.

Of a Parquet file only the wanted columns are read, row group by row group, in batches: a piece is up to PART_ROWS rows of
one row group, and a row group is read by one rank. Of JSON lines a piece is those that begin within some bytes of the file,
so that ranks need not read what others do.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from oarlock_trainer.data.metadata.json_cells import JsonError, read_cells, sketch
from oarlock_trainer.data.metadata.pieces import Piece
from oarlock_trainer.data.metadata.table import PART_ROWS
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, failed_reading, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oarlock_trainer.data.metadata.rows import PictureRows
    from oarlock_trainer.data.metadata.user_table import UserTable
    from oarlock_trainer.storage.files import FileEntry, Files


_BUFFER = 8 << 20
"""Bytes that are read ahead of a column. A row group as a whole may have any size, and would be held in memory."""


PIECE_BYTES = 2 << 20
"""Of a piece: at most PART_ROWS lines of 32 bytes, and a line that names three columns is longer."""
_LOOK_AHEAD = 64 << 10
_READ_AS_TEXT = "text"
"""Part of what pieces of JSON are known by: earlier versions made dates of some texts, and kept what they made."""


class ParquetPieces:
    """The rows of one Parquet file."""

    def __init__(self, given: UserTable, files: Files, entry: FileEntry) -> None:
        """Raises ConfigurationError where it is no Parquet file or lacks columns."""
        self._given = given
        self._table = f"{files.where}/{entry.name}"
        with _sound(self._table):
            self._file = pq.ParquetFile(files.open(entry.name), pre_buffer=False, buffer_size=_BUFFER)
        given.check(self._file.schema_arrow.names, table=self._table)
        sizes = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._first_rows = list(accumulate(sizes, initial=0))
        self.pieces: list[Piece] = []
        self.groups: list[range] = []
        for group, rows in enumerate(sizes):
            first = len(self.pieces)
            for start in range(0, rows, PART_ROWS):
                identity = given.identity(self._table, entry.version, group, start)
                self.pieces.append(Piece(identity, min(PART_ROWS, rows - start)))
            self.groups.append(range(first, len(self.pieces)))

    def read(self, group: int, wanted: Sequence[int], on: Callable[[int], None]) -> Iterator[tuple[int, PictureRows]]:
        """Decodes the whole row group, which has no other beginning, and hands out what is wanted of it.

        Raises ConfigurationError where it is damaged.
        """
        for place, rows in enumerate(_even(self._batches(group))):
            if (number := self.groups[group][place]) in wanted:
                first = self._first_rows[group] + place * PART_ROWS
                yield number, self._given.found(rows, first=first, table=self._table, on=on)

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        with _sound(self._table):
            yield from self._file.iter_batches(PART_ROWS, row_groups=[group], columns=self._given.columns)


@contextmanager
def _sound(table: str) -> Iterator[None]:
    """Turn what Arrow says of a file that is none, or damaged, into ConfigurationError: no restart changes it."""
    try:
        yield
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if failed_reading(error):
            raise StorageError(f"reading {table}: {error}") from error
        raise ConfigurationError(
            f"metadata.parquet.location: {table} is no Parquet file, or a damaged one: write it anew ({error})"
        ) from error


def _even(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in tables of PART_ROWS, the last one shorter: the reader may end a batch earlier than asked to."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        while sum(map(len, pending)) >= PART_ROWS:
            rows = pa.Table.from_batches(pending)
            yield rows.slice(0, PART_ROWS)
            pending = rows.slice(PART_ROWS).to_batches()
    if pending:
        yield pa.Table.from_batches(pending)


class JsonPieces:
    """The lines of one file of JSON objects."""

    def __init__(self, given: UserTable, files: Files, entry: FileEntry) -> None:
        """Raises ConfigurationError where the first lines are none, or lack columns."""
        self._given, self._files, self._entry = given, files, entry
        self._table = f"{files.where}/{entry.name}"
        lines = self._lines(0)
        with self._sound(0):
            names, self._schema, count = sketch(lines, given.texts, given.measures)
        given.check(names, table=self._table)
        starts = range(0, entry.size, PIECE_BYTES)
        a_line = len(lines) / count
        self.pieces = [
            Piece(
                given.identity(_READ_AS_TEXT, self._table, entry.version, start),
                round(min(PIECE_BYTES, entry.size - start) / a_line),
            )
            for start in starts
        ]
        self.groups = [range(number, number + 1) for number in range(len(starts))]

    def read(self, group: int, wanted: Sequence[int], on: Callable[[int], None]) -> Iterator[tuple[int, PictureRows]]:
        """Row numbers in messages count from the piece's beginning: how many lines came before, nobody knows."""
        del group  # each holds one piece
        for number in wanted:
            start = number * PIECE_BYTES
            with self._sound(start):
                rows = read_cells(self._lines(start), self._schema)
            yield number, self._given.found(rows, first=0, table=f"{self._table} from byte {start}", on=on)

    def _lines(self, start: int) -> bytes:
        """The lines that begin in the piece at `start`."""
        before = 1 if start else 0
        content = self._read(start - before, PIECE_BYTES + before)
        if before:
            # A line begins at `start` itself if one ends just before; otherwise this is the rest of an earlier one.
            content = content.partition(b"\n")[2]
        end = start + PIECE_BYTES
        while content and not content.endswith(b"\n") and end < self._entry.size:
            more = self._read(end, _LOOK_AHEAD)
            head, newline, _ = more.partition(b"\n")
            content, end = content + head + newline, end + len(more)
        return content

    def _read(self, start: int, length: int) -> bytes:
        with storage(f"reading {self._table}"):
            return self._files.read(self._entry.name, start, length)

    @contextmanager
    def _sound(self, start: int) -> Iterator[None]:
        """Turn what is wrong with lines from byte `start` on into ConfigurationError."""
        try:
            yield
        except JsonError as error:
            where = f" from byte {start}" if start else ""
            raise ConfigurationError(
                f"metadata.parquet.location: {self._table} is no file of JSON objects, one a line{where}: {error}"
            ) from error
