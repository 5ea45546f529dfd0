"""Everything that a training loop needs, put together: order of samples, model, engine, checkpoints, figures."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oarlock_api.weights import Lora
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import DataPosition
from oarlock_trainer.checkpoint.interval import Interval
from oarlock_trainer.checkpoint.memory.memory import Memory
from oarlock_trainer.checkpoint.reader import resume_words
from oarlock_trainer.checkpoint.writer import Writer
from oarlock_trainer.data.batch_fit import Batch
from oarlock_trainer.data.batches import Loader
from oarlock_trainer.data.grouping import make_timeline, steps_of, streams_of
from oarlock_trainer.data.prefetch import Prefetcher, patience
from oarlock_trainer.data.sampler import Origin, carried_over
from oarlock_trainer.engine import own_gpu
from oarlock_trainer.loop.metrics import Metrics
from oarlock_trainer.loop.setup import adapters_of, model_folder, saved_adapters
from oarlock_trainer.loop.trained_model import make_engine, plan_of
from oarlock_trainer.plan import bucket_report
from oarlock_trainer.plan.flops import peak_flops
from oarlock_trainer.plan.text_encoders import Home
from oarlock_trainer.preprocess.live import LiveEncoding
from oarlock_trainer.preprocess.live_text import LiveText
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.start_clock import StartPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.checkpoint.copies import Copies
    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.timeline import Timeline
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.hub.hub import Hub
    from oarlock_trainer.loop.setup import Setup
    from oarlock_trainer.models.architecture import Architecture
    from oarlock_trainer.plan.planner import Plan
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.runtime.start_clock import StartClock
    from oarlock_trainer.storage.locations import Locations
    from oarlock_trainer.validation.validation import Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All parts of a training loop, which goes on from `resumed` and ends after `total` steps."""

    job: Job
    locations: Locations
    hub: Hub
    ranks: RankGroup
    fence: Fence
    copies: Copies | None
    batch: Batch
    plan: Plan
    order: Timeline
    streams: tuple[tuple[str, int], ...]
    data_fingerprint: str
    engine: Engine
    writer: Writer
    memory: Memory | None
    interval: Interval
    loader: Loader
    prefetch: Prefetcher
    validation: Validation | None
    metrics: Metrics | None
    peak: float | None
    resumed: Checkpoint | None
    total: int

    @property
    def first(self) -> int:
        """Steps that are done already."""
        return self.resumed.step if self.resumed else 0

    @property
    def saved(self) -> int | None:
        """Of `first`, whether it needs no checkpoint: None where it lies in memory alone."""
        return None if self.resumed and self.resumed.in_memory else self.first

    @property
    def adapters(self) -> Lora | None:
        """What the adapters are like; None where the whole model is trained."""
        return adapters_of(self.job)

    @property
    def shape(self) -> Architecture:
        """What the model is like."""
        return self.plan.work.shape

    @property
    def model(self) -> Path:
        """The base model's directory."""
        return model_folder(self.job)

    def before_update(self) -> None:
        """Wait until the state may change: all that saves it has copied it."""
        self.writer.before_update()
        if self.memory:
            self.memory.before_update()

    def position(self, step: int) -> DataPosition:
        """Where the data stand after `step` steps."""
        return DataPosition(
            fingerprint=self.data_fingerprint,
            order=self.order.digest,
            origin=self.order.origin,
            reached=self.order.reached(step),
            streams=self.streams,
        )


def assemble(setup: Setup, clock: StartClock) -> Session:
    """Load the model, resume, and start reading the first batch."""
    job, ranks, batch, training = setup.job, setup.ranks, setup.batch, setup.job.training
    buckets = setup.prepared.buckets
    if job.rank_info.is_leader:
        bucket_report.write(job, setup.prepared.table, buckets, batch)
    order = _order(setup, buckets)
    total = steps_of(order, training)
    if setup.resumed and job.rank_info.is_leader:
        channel.tell(resume_words(setup.resumed, job_uid=job.file.job_uid, total=total))
    plan = plan_of(setup)
    channel.send(channel.Event.PLAN, **plan.status())
    engine, plan = make_engine(setup, plan)
    channel.send(channel.Event.PLAN, **plan.status())  # as it was measured
    clock.lap(StartPart.MODEL)
    loader = Loader(
        setup.prepared,
        buckets,
        # The same order once more: it is asked from another thread.
        make_timeline(buckets, training, effective=batch.effective, origin=order.origin),
        training=training,
        rank_info=job.rank_info,
        encoding=LiveEncoding(job, setup.locations, ranks),
        text=None
        if plan.work.text_home is Home.NONE
        else LiveText(job, ranks, streamed=plan.work.text_home is Home.HOST),
        pin=ranks.device.type == "cuda",
    )
    first = setup.resumed.step if setup.resumed else 0
    prefetch = Prefetcher(
        loader,
        first,
        total,
        patience=patience(job.file.recovery.hang_seconds),
        begin=partial(own_gpu.choose, ranks.device),
    )
    return Session(
        job=job,
        locations=setup.locations,
        hub=setup.hub,
        ranks=ranks,
        fence=setup.fence,
        copies=setup.copies,
        batch=batch,
        plan=plan,
        order=order,
        streams=streams_of(buckets, training),
        data_fingerprint=setup.prepared.fingerprint,
        engine=engine,
        writer=Writer(
            job.output,
            setup.fence,
            ranks,
            engine,
            keep=training.checkpoint.keep,
            adapters=saved_adapters(job, engine.weights),
        ),
        memory=_memory(setup, engine),
        interval=Interval(training.checkpoint, now=time.monotonic()),
        loader=loader,
        prefetch=prefetch,
        validation=setup.validation,
        metrics=Metrics(job.output, job.file.attempt) if job.rank_info.is_leader else None,
        peak=peak_flops(torch.cuda.get_device_name()) if ranks.device.type == "cuda" else None,
        resumed=setup.resumed,
        total=total,
    )


def _memory(setup: Setup, engine: Engine) -> Memory | None:
    """What keeps the newest state on this node; None where nothing does. Collective."""
    if setup.memory is None:
        return None
    every, resumed = setup.job.file.recovery.memory.every_steps, setup.resumed
    return Memory(
        setup.memory,
        setup.job,
        setup.ranks,
        engine,
        every=int(every) if every.isdecimal() else None,
        keep=resumed.step if resumed and resumed.in_memory else None,
        made_by=resumed.manifest.world_size if resumed and resumed.in_memory else None,
        adapters=saved_adapters(setup.job, engine.weights),
        ring=setup.ring,
    )


def _order(setup: Setup, buckets: Sequence[Bucket]) -> Timeline:
    """The order of samples: the checkpoint's, cut anew where the batch or the datasets' turns changed, or a new one."""
    make = partial(make_timeline, buckets, setup.job.training, effective=setup.batch.effective)
    if setup.resumed is None:
        return make()
    step, position = setup.resumed.step, setup.resumed.manifest.data
    if position.fingerprint != setup.prepared.fingerprint:
        channel.send(channel.Event.NOTE, message=f"the data changed: their order begins anew at step {step}")
        return make(origin=Origin(step))
    same = make(origin=position.origin)
    if same.digest == position.order:
        return same
    return make(
        origin=carried_over(position.reached, was=position.streams, now=streams_of(buckets, setup.job.training))
    )
