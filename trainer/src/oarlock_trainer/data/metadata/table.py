"""The metadata table: one row per picture that is trained on, in parts that every rank maps into memory.

    table.json            which parts in which order, what they were made from, which rows are left out
    parts/<name>.arrow    up to PART_ROWS rows of one dataset, as an Arrow file

Parts are written by whoever scanned them, each in one piece; the manifest comes last and makes them a table. Rows have
numbers, in the order of the parts; a row that proves unusable later keeps its number and is listed as left out. Mapped
parts cost no memory of the process: a node's ranks share the pages that they read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from oarlock_trainer.data.buckets import Size, codes
from oarlock_trainer.runtime.atomic_write import write_bytes, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PART_ROWS = 65536
MANIFEST = "table.json"
PARTS = "parts"
_VERSION = 1
_NOTES = b"notes"
_BUCKET = ("target_width", "target_height", "frames")

KEY_BYTES = 16
SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("width", pa.uint32(), nullable=False),
        pa.field("height", pa.uint32(), nullable=False),
        pa.field("target_width", pa.uint32(), nullable=False),
        pa.field("target_height", pa.uint32(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("image_key", pa.binary(KEY_BYTES), nullable=False),
        pa.field("text_keys", pa.list_(pa.binary(KEY_BYTES)), nullable=False),
    ]
)
"""Sizes in pixels, those of the picture as it is shown and those of its bucket; at least one caption, a key for each."""

PAIRED = pa.schema(
    [
        *SCHEMA,
        pa.field("pair", pa.string(), nullable=False),
        pa.field("pair_key", pa.binary(KEY_BYTES), nullable=False),
    ]
)
"""The same of a data set with `conditioning`: the name of each picture's pair below its own source, and its key."""

VIDEO_SCHEMA = pa.schema([*SCHEMA, pa.field("frames", pa.uint32(), nullable=False)])
"""The same of a data set with `video`: the frames of each bucket."""
_SCHEMAS = (SCHEMA, PAIRED, VIDEO_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One row: where the picture, or the video, is, how large, how it is trained. Keys name its latents and captions.

    `pair` and its key are empty where the data set has no `conditioning`. `mirrored`: it is shown mirrored, `paired`: its
    pair is meant; `image_key` is then that of what is stored of these (data.entries).
    """

    dataset: str
    name: str
    width: int
    height: int
    target_width: int
    target_height: int
    captions: tuple[str, ...]
    image_key: bytes
    text_keys: tuple[bytes, ...]
    pair: str = ""
    pair_key: bytes = b""
    frames: int = 1
    mirrored: bool = False
    paired: bool = False

    @property
    def size(self) -> Size:
        """Size of the picture as it is shown."""
        return Size(self.width, self.height)

    @property
    def target(self) -> Size:
        """Size of its bucket."""
        return Size(self.target_width, self.target_height, self.frames)

    @property
    def file(self) -> str:
        """Name of what is read, below the source of what is meant."""
        return self.pair if self.paired else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """One published part: its file's name below PARTS, its dataset's place in the job, its rows."""

    file: str
    dataset: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableManifest:
    """What makes parts a table: `fingerprint` of the settings, `job_uid` of the maker, rows `left_out` in rising order."""

    fingerprint: str
    job_uid: str
    datasets: tuple[str, ...]
    parts: tuple[TablePart, ...]
    left_out: tuple[int, ...] = ()


class Table:
    """A published table. Arrays have one entry per row, those that are left out included."""

    def __init__(self, folder: Path, manifest: TableManifest) -> None:
        """Maps all parts; raises OSError or ValueError where one is not there or not what it was."""
        self.manifest = manifest
        self._batches = [open_part(folder, part.file) for part in manifest.parts]
        for part, batch in zip(manifest.parts, self._batches, strict=True):
            if len(batch) != part.rows:
                raise ValueError(f"{folder / PARTS / part.file} has {len(batch)} rows instead of {part.rows}")
        self._ends = np.cumsum([part.rows for part in manifest.parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @cached_property
    def kept(self) -> np.ndarray:
        """(rows,) bool: which rows are used."""
        kept = np.ones(len(self), dtype=bool)
        kept[list(self.manifest.left_out)] = False
        return kept

    def buckets(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Part by part, so that no array is as long as the table: (dataset, first row, (n,) uint64 codes of target sizes)."""
        firsts = self._ends - [part.rows for part in self.manifest.parts]
        for part, first, batch in zip(self.manifest.parts, firsts.tolist(), self._batches, strict=True):
            yield part.dataset, first, codes(*(_numbers(batch, one) for one in _BUCKET))

    def datasets(self) -> np.ndarray:
        """(rows,) uint16: the place of each row's dataset in the job."""
        each = [part.rows for part in self.manifest.parts]
        return np.repeat(np.array([part.dataset for part in self.manifest.parts], dtype=np.uint16), each)

    def numbers(self, column: str) -> np.ndarray:
        """(rows,) uint32: one of width, height, target_width, target_height, frames."""
        return _joined([_numbers(batch, column) for batch in self._batches], np.dtype(np.uint32))

    def sizes(self) -> np.ndarray:
        """(rows,) uint64: codes of target sizes (data.buckets)."""
        return codes(*(self.numbers(one) for one in _BUCKET))

    def image_keys(self) -> np.ndarray:
        """(rows, 2) uint64."""
        return _joined([_keys(batch.column("image_key")) for batch in self._batches], np.dtype("<u8"), width=2)

    def pair_keys(self) -> np.ndarray:
        """(rows, 2) uint64: of the pictures' pairs, 0 of rows without."""
        each = [
            _keys(batch.column("pair_key")) if batch.schema.equals(PAIRED) else np.zeros((len(batch), 2), dtype="<u8")
            for batch in self._batches
        ]
        return _joined(each, np.dtype("<u8"), width=2)

    def text_keys(self) -> np.ndarray:
        """(captions, 2) uint64: of all captions of row 0, then of row 1, and so on."""
        lists = [batch.column("text_keys").flatten() for batch in self._batches]
        return _joined([_keys(keys) for keys in lists], np.dtype("<u8"), width=2)

    def caption_counts(self) -> np.ndarray:
        """(rows,) int64: captions of each row."""
        counts = [np.diff(batch.column("text_keys").offsets.to_numpy()) for batch in self._batches]
        return _joined(counts, np.dtype(np.int64))

    def picture(self, row: int) -> Picture:
        """One row."""
        number = int(np.searchsorted(self._ends, row, side="right"))
        first = int(self._ends[number - 1]) if number else 0
        batch = self._batches[number]
        values = {field.name: batch.column(field.name)[row - first].as_py() for field in batch.schema}
        values |= {name: tuple(values[name]) for name in ("captions", "text_keys")}
        return Picture(dataset=self.manifest.datasets[self.manifest.parts[number].dataset], **values)


def write_part(folder: Path, name: str, columns: Mapping[str, Any], *, notes: str = "") -> None:
    """Publish one part of the table below `folder`, with the columns of a schema. `notes` come back by part_notes."""
    fields = PAIRED if "pair" in columns else VIDEO_SCHEMA if "frames" in columns else SCHEMA
    schema = fields.with_metadata({_NOTES: notes})
    batch = pa.record_batch([pa.array(columns[field.name], type=field.type) for field in fields], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)
    path = folder / PARTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, memoryview(sink.getvalue()))


def part_notes(folder: Path, name: str) -> tuple[int, str] | None:
    """Rows and notes of a part that was published before, or None where there is none."""
    try:
        rows = open_part(folder, name)
        return len(rows), rows.schema.metadata[_NOTES].decode()
    except (OSError, ValueError):
        return None


def open_part(folder: Path, name: str) -> pa.RecordBatch:
    """The rows of a part, mapped. Raises OSError or ValueError where it is not there or no part of a table."""
    path = folder / PARTS / name
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    if reader.num_record_batches != 1 or not any(reader.schema.equals(known) for known in _SCHEMAS):
        raise ValueError(f"{path} is no part of a table")
    return reader.get_batch(0)


def publish(folder: Path, manifest: TableManifest) -> None:
    """Make parts a table, and remove the parts of earlier ones."""
    body = {
        "version": _VERSION,
        "fingerprint": manifest.fingerprint,
        "jobUid": manifest.job_uid,
        "datasets": list(manifest.datasets),
        "parts": [{"file": part.file, "dataset": part.dataset, "rows": part.rows} for part in manifest.parts],
        "leftOut": list(manifest.left_out),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MANIFEST, body)
    kept = {part.file for part in manifest.parts}
    for path in (folder / PARTS).glob("*.arrow"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def open_table(folder: Path) -> Table | None:
    """The published table, or None where there is none, or none that this version reads."""
    try:
        raw = json.loads((folder / MANIFEST).read_bytes())
        if raw["version"] != _VERSION:
            return None
        parts = tuple(TablePart(file=part["file"], dataset=part["dataset"], rows=part["rows"]) for part in raw["parts"])
        manifest = TableManifest(
            fingerprint=raw["fingerprint"],
            job_uid=raw["jobUid"],
            datasets=tuple(raw["datasets"]),
            parts=parts,
            left_out=tuple(raw["leftOut"]),
        )
        return Table(folder, manifest)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _numbers(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """(rows,) uint32; a picture has one frame."""
    if column == "frames" and not batch.schema.equals(VIDEO_SCHEMA):
        return np.ones(len(batch), dtype=np.uint32)
    numbers: np.ndarray = batch.column(column).to_numpy()
    return numbers


def _keys(column: pa.FixedSizeBinaryArray) -> np.ndarray:
    values = np.frombuffer(column.buffers()[1], dtype="<u8").reshape(-1, 2)
    return values[column.offset : column.offset + len(column)]


def _joined(parts: Sequence[np.ndarray], dtype: np.dtype[Any], *, width: int | None = None) -> np.ndarray:
    """One array, also of no parts at all."""
    empty = np.empty((0,) if width is None else (0, width), dtype=dtype)
    return np.concatenate([empty, *parts]).astype(dtype, copy=False)
