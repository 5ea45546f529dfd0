"""Data sets over tables that users wrote, read as a scan reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oarlock_api.training import Training
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.metadata.build_parts import make_parts
from oarlock_trainer.data.metadata.captions import Wording
from oarlock_trainer.data.metadata.facts import facts_of
from oarlock_trainer.data.metadata.listing import Stems, write_stems
from oarlock_trainer.data.metadata.pieces import Pieces
from oarlock_trainer.data.metadata.recipe import Recipe
from oarlock_trainer.data.metadata.table import open_part
from oarlock_trainer.data.metadata.table_files import JsonPieces, ParquetPieces
from oarlock_trainer.data.metadata.user_table import UserTable
from oarlock_trainer.storage.local import LocalFiles


def look(_pictures: int) -> None:
    """Nobody is told of progress."""


class Set:
    """A data set over a table in a folder."""

    def __init__(self, folder: Path, table: str, captions: dict[str, Any] | None = None, **fields: Any) -> None:
        dataset = {
            "name": "photos", "source": {"path": str(folder)}, "captions": captions or {"strategy": "Parquet"},
            "metadata": {"parquet": {"location": {"path": str(folder / table)}} | fields},
        }  # fmt: skip
        training = Training.model_validate(
            {"model": {"family": "Flux1", "path": "/m"}, "steps": 1, "resolution": 64, "data": {"datasets": [dataset]}}
        )
        self.dataset = training.data.datasets[0]
        self.files = LocalFiles(folder, field="source")
        self.folder, self.table = folder / "out", table
        self.recipe = Recipe(
            training=training, dataset=self.dataset, source=self.files.where, encoders=Encoders(vae="v", text="t")
        )
        assert self.dataset.metadata is not None
        assert self.dataset.metadata.parquet is not None
        self.settings = self.dataset.metadata.parquet

    def pieces(self) -> Pieces:
        stems = None
        if not self.settings.filename_has_extension:
            stems = Stems(self.folder, write_stems(self.files, self.folder))
        given = UserTable(
            dataset=self.dataset, settings=self.settings, files=self.files, wording=Wording(self.dataset), stems=stems,
            threads=2,
        )  # fmt: skip
        entry = self.files.find(self.table)
        assert entry is not None
        return (ParquetPieces if self.table.endswith(".parquet") else JsonPieces)(given, self.files, entry)

    def rows(self) -> list[dict[str, Any]]:
        """All rows of the parts, made anew."""
        pieces = self.pieces()
        made = sorted(make_parts(pieces, range(len(pieces.groups)), self.recipe, self.folder, on=look))
        return [row for one in made for row in open_part(self.folder, one.file).to_pylist()]

    def bad(self) -> list[tuple[str, str]]:
        pieces = self.pieces()
        made = make_parts(pieces, range(len(pieces.groups)), self.recipe, self.folder, on=look)
        return sorted((bad.name, bad.kind) for one in made for bad in facts_of(self.folder, one.file).listed)


def write(folder: Path, table: str, columns: dict[str, Any], **options: Any) -> None:
    if table.endswith(".parquet"):
        pq.write_table(pa.table(columns), folder / table, **options)
    else:
        rows = zip(*columns.values(), strict=True)
        (folder / table).write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
