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

from oarlock_api.dataset import EmbedMode, Role
from oarlock_api.training import Task
from oarlock_trainer.commands.config_checks import check_config
from oarlock_trainer.commands.local_manifest import job_file, moved
from oarlock_trainer.data import quarantine
from oarlock_trainer.data.batch_fit import batch_of
from oarlock_trainer.data.cache_keys import fingerprints
from oarlock_trainer.data.entries import keeps_mirrored
from oarlock_trainer.data.grouping import group, make_buckets, make_timeline, steps_an_epoch, steps_of
from oarlock_trainer.data.metadata.facts import counts_of, rejected_in
from oarlock_trainer.data.metadata.scan import scan, table_folder
from oarlock_trainer.data.metadata.table import Table
from oarlock_trainer.data.pair_sizes import image_tokens, pair_channels
from oarlock_trainer.data.seen_texts import seen_texts
from oarlock_trainer.engine import process_group
from oarlock_trainer.hub.hub import Hub
from oarlock_trainer.models import folder
from oarlock_trainer.models.families import family_of, flavor_of, sight_of
from oarlock_trainer.models.source import sketched
from oarlock_trainer.plan.words import DataPlan, PlannedBucket
from oarlock_trainer.runtime.job import Job, RankInfo
from oarlock_trainer.storage.locations import Locations, locations_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oarlock_api.spec import TrainingJobSpec
    from oarlock_api.training import Training
    from oarlock_trainer.data.batch_fit import Batch
    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.models.family import Family

_NAMED = 5
"""Pictures of a dataset that cannot be used and are named: enough to see what they have in common."""
_NO_MODEL = (
    "training.model.path: {model} is not on this machine: the model is not checked, the bytes are {family}'s own"
)
_NO_WEIGHTS = (
    "training.model.path: {model} has a configuration and no weights: no more of the model is checked, and what its folders "
    "do not say is {family}'s own"
)


def dry_run(name: str, spec: TrainingJobSpec, paths: Mapping[str, str]) -> DataPlan:
    """Scan the data and cut them into steps for the job's number of ranks, below a temporary folder.

    Raises TrainingEnd as the run would.
    """
    training = moved(spec, paths)
    model, family = Path(training.model.path or ""), family_of(training.model)
    world_size = spec.nodes * max(spec.gpus_per_node, 1)
    with tempfile.TemporaryDirectory(prefix="oarlock-plan-") as output, _alone() as ranks:
        file = job_file(name, spec, training, output=output, paths=paths)
        rank_info = RankInfo(rank=0, local_rank=0, world_size=world_size, local_world_size=1)
        job = Job(file=file, training=training, rank_info=rank_info, simulate_gpus=True)
        locations = locations_of(job, {})
        check_config(job, locations)
        encoders = fingerprints(model, family)
        try:
            scanned = scan(job, locations, ranks, encoders, fingerprint="plan", go_on=_nothing)
        except quarantine.TooManyRejectedError as error:
            raise error.unlisted() from error
        table = Table(table_folder(job.output), scanned.manifest)
        batch = batch_of(training, ranks=world_size, ranks_per_node=max(spec.gpus_per_node, 1))
        groups = group(table, training, tuple(Role))
        buckets, steps, epoch_steps = _cut(table, training, batch, groups)
        kept = [one.image_embeds.mode is not EmbedMode.ON_THE_FLY for one in training.data.datasets]
        stored = [(place, size, len(rows)) for place, size, rows in groups if kept[place]]
        encoded, ways = family.read_encoded(model, flavor_of(training.model)), (1 + keeps_mirrored(training)).tolist()
        pairs = [pair_channels(one, training.model, encoded.channels) for one in training.data.datasets]
        return DataPlan(
            batch=batch,
            buckets=buckets,
            pictures=int(table.kept.sum()),
            stored=[(size, count * ways[place]) for place, size, count in stored],
            pairs=[(size, count * ways[place], pairs[place]) for place, size, count in stored if pairs[place]],
            captions=_texts(table, training),
            sees=sight_of(training.model) is not None,
            steps=steps,
            epoch_steps=epoch_steps,
            family=family,
            encoded=encoded,
            text_mode=training.data.text_embeds_mode,
            notes=[*_left_out(job, table), *_model_left_out(model, family)],
        )


def _texts(table: Table, training: Training) -> int:
    """How many are encoded: each caption once, or beside each reference."""
    seen = seen_texts(table, training)
    return int(seen.wanted().sum()) if seen else len(np.unique(table.text_keys(), axis=0))


@contextmanager
def with_model_here(
    spec: TrainingJobSpec, paths: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[TrainingJobSpec]:
    """The same job, whose model is here as far as a plan reads it, though it lies in a bucket or on a hub."""
    training = moved(spec, paths)
    with sketched(training, Locations(connections=training.s3_connections), Hub(environment)) as model:
        here = training if model is training.model else training.model_copy(update={"model": model})
        yield spec if here is training else spec.model_copy(update={"training": here})


def _model_left_out(model: Path, family: Family) -> Iterator[str]:
    """A line where the model was not looked at as the run would."""
    if not model.is_dir():
        yield _NO_MODEL.format(model=model, family=family.name)
    elif folder.is_sketch(model, family):
        yield _NO_WEIGHTS.format(model=model, family=family.name)


def _left_out(job: Job, table: Table) -> Iterator[str]:
    """A line for each dataset with pictures that are not trained on, and for each of the first that cannot be used."""
    parts = table_folder(job.output)
    unusable = sorted(rejected_in(parts, table.manifest, most=quarantine.MOST))
    for one in counts_of(parts, table.manifest):
        if others := [f"{count} {kind}" for kind, count in (one.bad | one.left_out).items() if count]:
            yield f"{one.dataset}: {one.rows} of {one.found} pictures ({', '.join(others)})"
        named = [bad for bad in unusable if bad.dataset == one.dataset][:_NAMED]
        yield from (f"{bad.dataset}: {bad.name}: {bad.reason}" for bad in named)
        if named and (more := sum(one.bad.values()) - len(named)):
            yield f"{one.dataset}: and {more} more that cannot be used"
    for dataset in job.training.data.datasets:
        if dataset.probability == 0.0 and job.training.task is Task.TRAIN:
            yield f"{dataset.name}: probability 0, so it is encoded and never trained on"


def _cut(
    table: Table, training: Training, batch: Batch, groups: Sequence[tuple[int, Size, np.ndarray]]
) -> tuple[list[PlannedBucket], int, int | None]:
    """(buckets, steps, steps of an epoch). A job that only fills caches takes pictures of any number and has no steps."""
    datasets = training.data.datasets

    def planned(place: int, size: Size, pictures: int, repeats: int) -> PlannedBucket:
        one = datasets[place]
        tokens = image_tokens(one, size, training.model)
        return PlannedBucket(dataset=one.name, image_tokens=tokens, size=size, pictures=pictures, repeats=repeats)

    if training.task is not Task.TRAIN:
        return [planned(place, size, len(rows), 0) for place, size, rows in groups], 0, None
    buckets = make_buckets(table, training, batch)
    steps = steps_of(make_timeline(buckets, training, effective=batch.effective), training)
    drawn = [planned(one.dataset, one.size, len(one.rows), one.repeats) for one in buckets]
    return drawn, steps, steps_an_epoch(buckets, training, effective=batch.effective)


@contextmanager
def _alone() -> Iterator[process_group.RankGroup]:
    """This process as the only rank of a group."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield process_group.RankGroup(
            RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1), torch.device("cpu"), control=None
        )
    finally:
        process_group.leave()


def _nothing() -> None:
    """Nobody asks a plan to leave but by Ctrl-C."""
