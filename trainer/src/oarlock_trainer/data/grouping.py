"""Rows of the table in buckets: the pictures of one dataset that are trained at one size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oarlock_api.dataset import Role
from oarlock_trainer.data.batch_fit import Batch, BucketSize, fit
from oarlock_trainer.data.buckets import size_of
from oarlock_trainer.data.sampler import Stream
from oarlock_trainer.data.timeline import Timeline, Turn
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.data.sampler import Origin


TRAINED = frozenset({Role.TRAIN, Role.REGULARIZATION})
"""Roles of the datasets that optimizer steps draw from."""


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


def group(table: Table, training: Training, roles: Collection[Role] = TRAINED) -> list[tuple[int, Size, np.ndarray]]:
    """(dataset, size, rows) of every bucket of the datasets with one of the roles, in this order; rows in the table's order.

    Part by part: beside the result, 4 bytes a row, nothing grows with the table.
    """
    found: dict[tuple[int, Size], list[np.ndarray]] = defaultdict(list)
    for dataset, first, sizes in table.buckets():
        if training.data.datasets[dataset].role not in roles:
            continue
        rows = np.flatnonzero(table.kept[first : first + len(sizes)])
        different, which = np.unique(sizes[rows], return_inverse=True)
        # A part has few sizes: of 16 bits the stable sort is a radix sort.
        ordered = np.argsort(which.astype(np.uint16), kind="stable")
        for code, part in zip(different.tolist(), _cut(rows[ordered] + first, which), strict=True):
            found[dataset, size_of(code)].append(part.astype(np.uint32))
    return [(dataset, size, np.concatenate(found[dataset, size])) for dataset, size in sorted(found)]


def _cut(ordered: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
    """Rows that stand in the order of their groups, group by group."""
    return np.split(ordered, np.cumsum(np.bincount(which))[:-1])


def make_buckets(table: Table, training: Training, batch: Batch) -> list[Bucket]:
    """Group the table, and give every bucket its passes. A dataset with probability 0 is never drawn from: it has none.

    Raises ConfigurationError that lists all buckets that cannot fill a step, or where there is nothing to train on.
    """
    found = group(table, training)
    if all(training.data.datasets[place].role is not Role.TRAIN for place, _, _ in found):
        raise ConfigurationError("no dataset has role: Train, so there is nothing to train on: give one that role")
    datasets = training.data.datasets
    found = [one for one in found if datasets[one[0]].probability != 0.0]
    sizes = [
        BucketSize(
            dataset=datasets[place].name,
            aspect=size.aspect,
            frames=size.frames,
            pictures=len(rows),
            repeats=datasets[place].repeats,
        )
        for place, size, rows in found
    ]
    fitted = fit(sizes, batch, repeat_small=training.data.small_buckets == "Repeat")
    return [
        Bucket(dataset=place, size=size, rows=rows, repeats=fitting.repeats)
        for (place, size, rows), fitting in zip(found, fitted, strict=True)
    ]


def streams_of(buckets: Sequence[Bucket], training: Training) -> tuple[tuple[str, int], ...]:
    """(name, samples an epoch) of each bucket's stream, by which a checkpoint knows it again."""
    names = [training.data.datasets[bucket.dataset].name for bucket in buckets]
    return tuple((f"{name}/{bucket.size}", bucket.samples) for name, bucket in zip(names, buckets, strict=True))


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
        if dataset.role in TRAINED
    ]
    streams = [Stream(len(bucket.rows), bucket.samples) for bucket in buckets]
    return Timeline(streams, turns, seed=training.seed, effective=effective, origin=origin)


def steps_an_epoch(buckets: Sequence[Bucket], training: Training, *, effective: int) -> int | None:
    """Steps that cover the datasets that are drawn from by size once; None where a dataset comes or goes on the way."""
    if not buckets or any(dataset.start_step or dataset.end_step for dataset in training.data.datasets):
        return None
    return make_timeline(buckets, training, effective=effective).steps_in(1)


def steps_of(order: Timeline, training: Training) -> int:
    """Steps of the whole run. Raises ConfigurationError where they cannot be told, or some have no dataset."""
    steps = training.steps or order.steps_in(training.epochs or 1)
    order.check(steps)
    return steps
