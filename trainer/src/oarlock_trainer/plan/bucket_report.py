"""What the buckets of a run hold and what became of the other pictures: for people, as JSON and as a picture.

<output>/reports/buckets.json    counts of each data set and bucket, before and after data.smallBuckets: Repeat
<output>/reports/buckets.svg     the same as bars
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock_trainer.data.batch_fit import Batch
from oarlock_trainer.data.grouping import steps_an_epoch
from oarlock_trainer.data.metadata.facts import Counts, counts_of, total
from oarlock_trainer.data.metadata.scan import table_folder
from oarlock_trainer.runtime import svg
from oarlock_trainer.runtime.atomic_write import write_bytes, write_json
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.metadata.table import Table, TableManifest
    from oarlock_trainer.runtime.job import Job

_REPORTS = "reports"

_ROW, _LABEL, _BARS, _NUMBERS = 18, 190, 520, 330
"""Pixels of the picture: a row's height, and how wide its label, bars and numbers are."""


def write(job: Job, table: Table, buckets: Sequence[Bucket], batch: Batch) -> None:
    """Write both files. `buckets` are those that are trained on, with the repeats that they got. One rank only."""
    counts = list(_with_left_out(counts_of(table_folder(job.output), table.manifest), table.manifest))
    report = describe(counts, job.training, buckets, batch)
    folder = job.output / _REPORTS
    with storage("writing the bucket report"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "buckets.json", report)
        write_bytes(folder / "buckets.svg", picture(report).encode())


def describe(counts: Sequence[Counts], training: Training, buckets: Sequence[Bucket], batch: Batch) -> dict[str, Any]:
    """The report as JSON. Datasets stand in the job's order in `counts` too; steps an epoch are whole ones."""
    datasets = training.data.datasets
    return {
        "effectiveBatch": {
            "samples": batch.effective,
            "perGpu": batch.per_rank,
            "gpus": batch.ranks,
            "accumulation": batch.accumulation,
        },
        "stepsPerEpoch": steps_an_epoch(buckets, training, effective=batch.effective),
        "datasets": [
            {
                "name": dataset.name,
                "role": str(dataset.role),
                "found": count.found,
                "rows": count.rows,
                "quarantined": count.bad,
                "leftOut": count.left_out,
                "buckets": [
                    _bucket(bucket, dataset, batch) for bucket in buckets if datasets[bucket.dataset] is dataset
                ],
            }
            for count, dataset in zip(counts, datasets, strict=True)
        ],
    }


def picture(report: dict[str, Any]) -> str:
    """The report as SVG: a row for each bucket, its pictures dark, what repeats add to them light."""
    most = max((bucket["samples"] for one in report["datasets"] for bucket in one["buckets"]), default=1)
    lines = list(_lines(report, most))
    height = _ROW * (len(lines) + 1)
    rows = [f'<g transform="translate(10 {_ROW * (number + 1)})">{line}</g>' for number, line in enumerate(lines)]
    return svg.document(_LABEL + _BARS + _NUMBERS, height, rows)


def _bucket(bucket: Bucket, dataset: Dataset, batch: Batch) -> dict[str, Any]:
    pictures = len(bucket.rows)
    return {
        "width": bucket.size.width,
        "height": bucket.size.height,
        "aspect": bucket.size.aspect,
        "frames": bucket.size.frames,
        "pictures": pictures,
        "repeatsBefore": dataset.repeats,
        "repeats": bucket.repeats,
        "samplesBefore": pictures * (dataset.repeats + 1),
        "samples": bucket.samples,
        "stepsPerEpoch": bucket.samples // batch.effective,
    }


def _with_left_out(counts: Sequence[Counts], manifest: TableManifest) -> Iterator[Counts]:
    """Rows that proved unusable when they were encoded are no rows any more, but quarantined."""
    ends = np.cumsum([count.rows for count in counts])
    lost = np.bincount(np.searchsorted(ends, manifest.left_out, side="right"), minlength=len(counts))
    for count, number in zip(counts, lost.tolist(), strict=True):
        yield Counts(
            dataset=count.dataset,
            found=count.found,
            rows=count.rows - number,
            bad=total([count.bad, {"not encodable": number}]),
            left_out=count.left_out,
        )


def _lines(report: dict[str, Any], most: int) -> Iterator[str]:
    batch = report["effectiveBatch"]
    found = Batch(
        per_rank=batch["perGpu"],
        ranks=batch["gpus"],
        accumulation=batch["accumulation"],
        micro_batches=batch["samples"] // batch["perGpu"],
    )
    yield svg.text(
        0,
        f"{_steps(report['stepsPerEpoch'])} of {batch['samples']:,} samples = {found.product}",
    )
    for one in report["datasets"]:
        others = [f"{count:,} {kind}" for kind, count in one["quarantined"].items()]
        others += [f"{count:,} left out by {field}" for field, count in one["leftOut"].items()]
        yield ""
        yield svg.text(0, f"{one['name']}: {one['rows']:,} of {one['found']:,} pictures{_after(others)}", weight="bold")
        for bucket in one["buckets"]:
            scale = _BARS / most
            yield "".join(
                [
                    svg.text(0, f"{_size(bucket)} ({bucket['aspect']:.2f})"),
                    _bar(bucket["samples"] * scale, svg.LIGHT),
                    _bar(bucket["pictures"] * scale, svg.DARK),
                    svg.text(_LABEL + bucket["samples"] * scale + 6, _numbers(bucket)),
                ]
            )


def _size(bucket: dict[str, Any]) -> str:
    sides = f"{bucket['width']} x {bucket['height']}"
    return f"{sides} x {bucket['frames']}" if bucket["frames"] > 1 else sides


def _steps(an_epoch: int | None) -> str:
    return "steps" if an_epoch is None else f"{an_epoch:,} steps an epoch"


def _numbers(bucket: dict[str, Any]) -> str:
    before = f" (was {bucket['repeatsBefore'] + 1})" if bucket["repeats"] != bucket["repeatsBefore"] else ""
    times = "" if bucket["repeats"] == 0 else f" x {bucket['repeats'] + 1}{before}"
    return f"{bucket['pictures']:,}{times}, {bucket['stepsPerEpoch']:,} steps"


def _after(words: Sequence[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _bar(width: float, colour: str) -> str:
    return f'<rect x="{_LABEL}" y="-10" width="{max(width, 1):.1f}" height="12" fill="{colour}"/>'
