"""`oarlock-trainer plan`: what a job would do with its data, told here and now, without GPUs and without the cluster.

It goes the way of a run, with the same code, up to the first picture that would be encoded: so it fails where the run
would fail, with the same words. What it finds out is thrown away; nothing is written to the job's places.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from oarlock_api.dataset import Role
from oarlock_api.training import Task
from oarlock_trainer.data.grouping import group, make_buckets, make_timeline, steps_of
from oarlock_trainer.data.metadata.scan import scan, table_folder
from oarlock_trainer.data.metadata.table import Table
from oarlock_trainer.data.metadata.told import counts_of
from oarlock_trainer.engine import process_group
from oarlock_trainer.job import Job, Place
from oarlock_trainer.local_manifest import job_file, moved
from oarlock_trainer.models.flux import folder
from oarlock_trainer.plan.batches import Batch
from oarlock_trainer.plan.embeds import read_encoded
from oarlock_trainer.plan.support import refuse_unsupported
from oarlock_trainer.plan.words import Plan, PlannedBucket
from oarlock_trainer.preprocess.keys import fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oarlock_api.dataset import Dataset
    from oarlock_api.spec import TrainingJobSpec
    from oarlock_api.training import Training


_NO_MODEL = "training.model.path: {model} is not on this machine: the model is not checked, the bytes are FLUX.1's own"


def rehearse(name: str, spec: TrainingJobSpec, paths: Mapping[str, str]) -> Plan:
    """Scan the data and cut them into steps for the job's number of ranks, below a temporary folder.

    Raises TrainingEnd as the run would.
    """
    training = moved(spec, paths)
    refuse_unsupported(training)
    model = Path(training.model.path or "")
    if model.is_dir():
        folder.check(model, field="training.model.path")
    world_size = spec.nodes * max(spec.gpus_per_node, 1)
    with tempfile.TemporaryDirectory(prefix="oarlock-plan-") as output, _alone() as ranks:
        file = job_file(name, spec, training, output=output)
        place = Place(rank=0, local_rank=0, world_size=world_size, local_world_size=1)
        job = Job(file=file, training=training, place=place, simulate_gpus=True)
        encoders = fingerprints(model)
        scanned = scan(job, ranks, encoders, fingerprint="plan", go_on=_nothing)
        table = Table(table_folder(job.output), scanned.manifest)
        batch = Batch(per_rank=training.batch_size, ranks=world_size, accumulation=training.gradient_accumulation)
        buckets, steps, epoch_steps = _cut(table, training, batch)
        return Plan(
            batch=batch,
            buckets=buckets,
            captions=len(np.unique(table.text_keys(), axis=0)),
            steps=steps,
            epoch_steps=epoch_steps,
            encoded=read_encoded(model),
            notes=[*_left_out(job, table), *([] if model.is_dir() else [_NO_MODEL.format(model=model)])],
        )


def _left_out(job: Job, table: Table) -> Iterator[str]:
    """A line for each dataset that has pictures which are not trained on."""
    for one in counts_of(table_folder(job.output), table.manifest):
        if others := [f"{count} {kind}" for kind, count in (one.bad | one.left_out).items() if count]:
            yield f"{one.dataset}: {one.rows} of {one.found} pictures ({', '.join(others)})"


def _cut(table: Table, training: Training, batch: Batch) -> tuple[list[PlannedBucket], int, int | None]:
    """(buckets, steps, steps of an epoch). A job that only fills caches takes pictures of any number and has no steps."""
    names = [dataset.name for dataset in training.data.datasets]
    if training.task is not Task.TRAIN:
        found = group(table, training, tuple(Role))
        whole = [
            PlannedBucket(dataset=names[place], size=size, pictures=len(rows), repeats=0) for place, size, rows in found
        ]
        return whole, 0, None
    buckets = make_buckets(table, training, batch)
    order = make_timeline(buckets, training, effective=batch.effective)
    steps = steps_of(order, training)
    planned = [
        PlannedBucket(dataset=names[one.dataset], size=one.size, pictures=len(one.rows), repeats=one.repeats)
        for one in buckets
    ]
    return planned, steps, None if any(map(_comes_and_goes, training.data.datasets)) else order.steps_in(1)


def _comes_and_goes(dataset: Dataset) -> bool:
    return bool(dataset.start_step or dataset.end_step)


@contextmanager
def _alone() -> Iterator[process_group.Ranks]:
    """This process as the only rank of a group."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield process_group.Ranks(
            Place(rank=0, local_rank=0, world_size=1, local_world_size=1), torch.device("cpu"), control=None
        )
    finally:
        process_group.leave()


def _nothing() -> None:
    """Nobody asks a plan to leave but by Ctrl-C."""
