"""Rows of the table in buckets: the pictures of one dataset that are trained at one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_api.dataset import Role
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.sampler import Stream
from oarlock_trainer.data.timeline import Timeline, Turn
from oarlock_trainer.plan.batches import Batch, BucketSize, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.data.sampler import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Pictures of one dataset and one size: (n,) uint32 `rows` of the table, seen `repeats` + 1 times an epoch.

    `dataset` is its place in the job.
    """

    dataset: int
    size: Size
    rows: np.ndarray
    repeats: int

    @property
    def samples(self) -> int:
        """Samples that one epoch offers."""
        return len(self.rows) * (self.repeats + 1)


def group(table: Table, training: Training, role: Role = Role.TRAIN) -> list[tuple[int, Size, np.ndarray]]:
    """(dataset, size, rows) of every bucket of the datasets with a role, in this order; rows in the table's order."""
    meant = np.array([dataset.role is role for dataset in training.data.datasets])
    datasets = table.datasets()
    rows = np.flatnonzero(table.kept & meant[datasets])
    codes = datasets[rows].astype(np.uint64) << np.uint64(32)
    codes |= table.numbers("target_width")[rows].astype(np.uint64) << np.uint64(16)
    codes |= table.numbers("target_height")[rows]
    found = np.unique(codes)
    # Few buckets, many rows: of 16 bits a row the stable sort is a radix sort.
    which = np.searchsorted(found, codes).astype(np.uint16)
    ordered = rows[np.argsort(which, kind="stable")].astype(np.uint32)
    ends = np.cumsum(np.bincount(which, minlength=len(found)))
    return [
        (int(code) >> 32, Size(int(code) >> 16 & 0xFFFF, int(code) & 0xFFFF), ordered[end - count : end])
        for code, end, count in zip(found, ends, np.diff(ends, prepend=0), strict=True)
    ]


def make_buckets(table: Table, training: Training, batch: Batch) -> list[Bucket]:
    """Group the table, and give every bucket its passes.

    Raises ConfigurationError that lists all buckets that cannot fill a step.
    """
    found = group(table, training)
    datasets = training.data.datasets
    sizes = [
        BucketSize(
            dataset=datasets[place].name, aspect=size.aspect, pictures=len(rows), repeats=datasets[place].repeats
        )
        for place, size, rows in found
    ]
    fitted = fit(sizes, batch, repeat_small=training.data.small_buckets == "Repeat")
    return [
        Bucket(dataset=place, size=size, rows=rows, repeats=fitting.repeats)
        for (place, size, rows), fitting in zip(found, fitted, strict=True)
    ]


def make_timeline(
    buckets: Sequence[Bucket], training: Training, *, effective: int, origin: Origin | None = None
) -> Timeline:
    """The order of all steps over these buckets. startStep and endStep count from 1, as all steps that users see."""
    turns = [
        Turn(
            dataset=dataset.name,
            streams=tuple(number for number, bucket in enumerate(buckets) if bucket.dataset == place),
            probability=dataset.probability,
            start=max((dataset.start_step or 1) - 1, 0),
            end=dataset.end_step,
        )
        for place, dataset in enumerate(training.data.datasets)
        if dataset.role is Role.TRAIN
    ]
    streams = [Stream(len(bucket.rows), bucket.samples) for bucket in buckets]
    return Timeline(streams, turns, seed=training.seed, effective=effective, origin=origin)
