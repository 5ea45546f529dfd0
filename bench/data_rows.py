"""Ten million rows of Parquet: from nothing to the rows of the first global batch, and again with the table published.

The file has the columns of a web scrape, of which four are wanted, in row groups of a million rows as pyarrow writes them.
It has just been written or read: no disk is waited for but to store the parts.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import data_node
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data_report import Figures, report, watched

from oarlock_trainer.data.batch_fit import Batch
from oarlock_trainer.data.cache_keys import fingerprints
from oarlock_trainer.data.grouping import make_buckets, make_timeline
from oarlock_trainer.data.metadata.scan import scan, table_folder
from oarlock_trainer.data.metadata.table import Table, open_table, publish
from oarlock_trainer.models.families import family_of
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job

_GROUP = 1 << 20
_WORDS = "cat dog house portrait of a an red old wooden table with light mountain under evening sky painting detailed"
_ASPECTS = np.array([(1024 + 64 * number, 1536 - 32 * number) for number in range(20)], dtype=np.int32)


def measure(folder: Path, *, count: int, rounds: int) -> None:
    """Start and restart, `rounds` times."""
    table = folder / f"rows-{count}.parquet"
    if not table.exists():
        write_rows(table, count)
    source: dict[str, Any] = {"path": str(folder)}
    dataset = {
        "name": "scrape",
        "source": source,
        "metadata": {"parquet": {"location": {"path": str(table)}}},
        "captions": {"strategy": "Parquet"},
    }
    training = {
        "model": {"family": "Flux1", "path": "/model"}, "steps": 1, "batchSize": 8, "data": {"datasets": [dataset]},
    }  # fmt: skip
    output = folder / "output"
    measured: dict[str, list[Figures]] = {"start": [], "restart, table published": []}
    for _ in range(rounds):
        shutil.rmtree(output, ignore_errors=True)
        for kept in measured.values():
            figures: Figures = {}
            with watched(figures):
                run = data_node.run("data_rows:first_batch", training, output)
            last = 0.0
            for name, seconds in run.marks.items():
                figures[f"{name}, s"], last = seconds - last, seconds
            figures["fork -> first batch, s"] = run.marks["first batch"]
            figures["peak of the node, MiB"] = run.peak_mib
            figures["of it imported, MiB"] = run.imported_mib
            figures["imports before that, s"] = run.import_seconds
            kept.append(figures)
    shutil.rmtree(output, ignore_errors=True)
    report("rows", measured)


def first_batch(job: Job, ranks: RankGroup, mark: Callable[[str], None]) -> None:
    """The work of one rank."""
    folder, training = table_folder(job.output), job.training
    encoders = fingerprints(Path(training.model.path or ""), family_of(training.model))

    def manifest_there() -> Any:
        table = open_table(folder)
        return table.manifest if table else None

    published = ranks.decide(manifest_there)
    manifest = published or scan(job, Locations(), ranks, encoders, fingerprint="bench", go_on=_nothing).manifest
    mark("metadata")
    table = Table(folder, manifest)
    mark("table mapped")
    batch = Batch(per_rank=training.batch_size, ranks=ranks.rank_info.world_size, accumulation=1)
    buckets = make_buckets(table, training, batch)
    mark("buckets")
    drawn = make_timeline(buckets, training, effective=batch.effective).at(0)
    pictures = [table.picture(row) for row in buckets[drawn.bucket].rows[drawn.pictures].tolist()]
    mark("first batch")
    if len({picture.target for picture in pictures}) != 1 or len(pictures) != batch.effective:
        raise RuntimeError("the first global batch is none")
    if published is None:
        ranks.decide(lambda: publish(folder, manifest))


def write_rows(path: Path, count: int) -> None:
    """The table of a made-up scrape."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    batches = _batches(count)
    first = next(batches)
    with pq.ParquetWriter(unfinished, first.schema) as writer:
        writer.write_table(first)
        for batch in batches:
            writer.write_table(batch)
    unfinished.rename(path)


def _batches(count: int) -> Iterator[pa.Table]:
    source = np.random.default_rng(1)
    words = np.array(_WORDS.split())
    beginnings = pa.array([" ".join(source.choice(words, source.integers(10, 18))) for _ in range(4096)])
    for start in range(0, count, _GROUP):
        rows = min(_GROUP, count - start)
        numbers = pc.cast(pa.array(np.arange(start, start + rows)), pa.string())
        sizes = _ASPECTS[source.integers(0, len(_ASPECTS), rows)]
        chosen = beginnings.take(pa.array(source.integers(0, len(beginnings), rows)))
        columns = {
            "filename": pc.binary_join_element_wise("pictures/", numbers, ".jpg", ""),
            "url": pc.binary_join_element_wise("https://pictures.example/", numbers, ""),
            "width": pa.array(sizes[:, 0]),
            "height": pa.array(sizes[:, 1]),
            "caption": pc.binary_join_element_wise(chosen, numbers, " "),
            "aesthetic": pa.array(source.random(rows, dtype=np.float32)),
        }
        yield pa.table(columns)


def _nothing() -> None:
    """Nobody asks a benchmark to leave."""
