"""The metadata table: one row per picture that is trained on, kept as Parquet in the output directory.

It is published when all embeddings of its rows are: a table with the right fingerprint means that preprocessing is
done. Within one job it stays as it is, so that a picture added while the job runs can't change the order of a resume.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from oarlock_trainer.data.buckets import Size
from oarlock_trainer.durable import write_bytes

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture: where it is, how large, how it is trained. Keys name its latents and its caption's embeddings."""

    dataset: str
    name: str
    width: int
    height: int
    target_width: int
    target_height: int
    caption: str
    image_key: str
    text_key: str

    @property
    def target(self) -> Size:
        """Size of its bucket."""
        return Size(self.target_width, self.target_height)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All pictures of a job, and what they were made from: `fingerprint` of the settings, `job_uid` of the maker."""

    pictures: tuple[Picture, ...]
    fingerprint: str
    job_uid: str


def write_table(path: Path, table: Table) -> None:
    """Publish a table in one piece."""
    columns = {field.name: [getattr(picture, field.name) for picture in table.pictures] for field in fields(Picture)}
    arrow = pa.table(columns).replace_schema_metadata({"fingerprint": table.fingerprint, "jobUid": table.job_uid})
    sink = pa.BufferOutputStream()
    pq.write_table(arrow, sink)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, sink.getvalue().to_pybytes())


def read_table(path: Path) -> Table | None:
    """Read a published table, or None where there is none or an older version wrote other columns."""
    try:
        arrow = pq.ParquetFile(path).read(use_threads=False)
        metadata = arrow.schema.metadata or {}
        columns = [arrow.column(field.name).to_pylist() for field in fields(Picture)]
    except (FileNotFoundError, KeyError, pa.ArrowInvalid):
        return None
    names = [field.name for field in fields(Picture)]
    return Table(
        pictures=tuple(Picture(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)),
        fingerprint=metadata.get(b"fingerprint", b"").decode(),
        job_uid=metadata.get(b"jobUid", b"").decode(),
    )
