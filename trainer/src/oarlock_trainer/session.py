"""Everything that one attempt trains with, put together in the order in which it can fail most cheaply.

settings -> ranks -> fence and resume point -> data (nothing is encoded for a job that cannot run) -> model -> engine
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.layout import Owner
from oarlock_api.engine import CompileMode, Strategy
from oarlock_api.training import Task
from oarlock_api.weights import Lora, Method
from oarlock_trainer import channel, publish
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import Adapters, Checkpoint, DataPosition
from oarlock_trainer.checkpoint.interval import Interval
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.checkpoint.reader import resume_words, take_over
from oarlock_trainer.checkpoint.writer import Writer
from oarlock_trainer.data.batches import Loader
from oarlock_trainer.data.grouping import make_buckets, make_timeline, steps_of, streams_of
from oarlock_trainer.data.prefetch import Prefetcher
from oarlock_trainer.data.sampler import Origin, carried_over
from oarlock_trainer.engine import collective, deepspeed
from oarlock_trainer.engine.initialize import initialize, strategy
from oarlock_trainer.metrics import Metrics
from oarlock_trainer.models.flux import folder, lora, transformer
from oarlock_trainer.models.flux.frozen_weights import quantize
from oarlock_trainer.models.flux.tuning import tune
from oarlock_trainer.models.flux.warm_up import Shape, warm_up
from oarlock_trainer.models.source import bring
from oarlock_trainer.plan import bucket_report
from oarlock_trainer.plan.batches import Batch
from oarlock_trainer.plan.flops import peak_flops
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.plan.planner import plan_for
from oarlock_trainer.plan.support import refuse_unsupported
from oarlock_trainer.plan.work import picture_tokens
from oarlock_trainer.preprocess.live import LiveEncoding
from oarlock_trainer.preprocess.pipeline import prepare
from oarlock_trainer.validation.wanted import read_wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from oarlock_api.engine import Attention
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.data.timeline import Timeline
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.engine.process_group import Ranks
    from oarlock_trainer.job import Job
    from oarlock_trainer.plan.parameters import Architecture
    from oarlock_trainer.plan.planner import Plan
    from oarlock_trainer.preprocess.pipeline import Prepared
    from oarlock_trainer.validation.validation import Validation
    from oarlock_trainer.validation.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The output is ours and the data are there: what both training and preprocessing begin with."""

    job: Job
    ranks: Ranks
    fence: Fence
    resumed: Checkpoint | None
    batch: Batch
    prepared: Prepared
    validation: Validation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All parts of a training loop. `first` steps are done already, of `total`."""

    job: Job
    ranks: Ranks
    fence: Fence
    batch: Batch
    plan: Plan
    order: Timeline
    streams: tuple[tuple[str, int], ...]
    data_fingerprint: str
    engine: Engine
    writer: Writer
    interval: Interval
    loader: Loader
    prefetch: Prefetcher
    validation: Validation | None
    metrics: Metrics | None
    peak: float | None
    first: int
    total: int

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

    def position(self, step: int) -> DataPosition:
        """Where the data stand after `step` steps."""
        return DataPosition(
            fingerprint=self.data_fingerprint,
            order=self.order.digest,
            origin=self.order.origin,
            reached=self.order.reached(step),
            streams=self.streams,
        )


def model_folder(job: Job) -> Path:
    """The base model's directory."""
    return Path(job.training.model.path or "")


def adapters_of(job: Job) -> Lora | None:
    """What a job's adapters are like; None where it trains the whole model."""
    return job.training.lora or Lora() if job.training.method is Method.LORA else None


def _initial_weights(job: Job) -> Path | None:
    """The directory of training.initFrom."""
    start = job.training.init_from
    return Path(start.path) if start and start.path else None


def claim(job: Job, *, go_on: Callable[[], None]) -> Claim:
    """Join the ranks, take the output over, and make sure that all embeddings are there.

    `go_on` is called while waiting and encoding, and may raise to stop.
    """
    training = job.training
    refuse_unsupported(training)
    if training.model.path:
        folder.check(model_folder(job), field="training.model.path")
    if strategy(training) is Strategy.DEEPSPEED:
        deepspeed.check(training)
    ranks = collective.join(job, go_on=go_on)
    owner = Owner(job.file.job_uid, job.file.attempt)
    name = f"{job.file.namespace}/{job.file.job}"
    fence = Fence(job.output, owner, job=name, gone=name if job.file.previous_owner_is_gone else "")
    resumed = take_over(job, ranks, fence, go_on=go_on)
    if training.task is Task.TRAIN and training.publish:
        ranks.decide(lambda: publish.check(job, go_on=go_on))
    job = bring(job, ranks, initial=not resumed, go_on=go_on)
    if not resumed and (weights := _initial_weights(job)):
        if adapters_of(job):
            folder.check_file(weights, lora.FILE, field="training.initFrom.path")
        else:
            folder.check_transformer(weights, field="training.initFrom.path")
    batch = Batch(per_rank=training.batch_size, ranks=job.place.world_size, accumulation=training.gradient_accumulation)

    def cut(table: Table) -> list[Bucket]:
        """The buckets that are trained on, which are enough for a run; none where nothing is trained."""
        if training.task is not Task.TRAIN:
            return []
        buckets = make_buckets(table, training, batch)
        steps_of(make_timeline(buckets, training, effective=batch.effective), training)
        return buckets

    wanted = ranks.decide(lambda: read_wanted(job))
    prepared = prepare(job, ranks, cut=cut, go_on=go_on)
    return Claim(
        job=job,
        ranks=ranks,
        fence=fence,
        resumed=resumed,
        batch=batch,
        prepared=prepared,
        validation=_validation(job, ranks, wanted, go_on=go_on) if wanted else None,
    )


def _validation(job: Job, ranks: Ranks, wanted: Sequence[Wanted], *, go_on: Callable[[], None]) -> Validation:
    """What makes the pictures, with all prompts encoded."""
    from oarlock_trainer.validation.texts import prepare_texts  # noqa: PLC0415 - for those who want pictures
    from oarlock_trainer.validation.validation import Validation  # noqa: PLC0415

    texts = prepare_texts(job, ranks, wanted, go_on=go_on)
    return Validation(job, ranks, wanted, texts, architecture=read_architecture(model_folder(job)))


def assemble(claim: Claim) -> Session:
    """Load the model, resume, and start reading the first batch."""
    job, ranks, batch, training = claim.job, claim.ranks, claim.batch, claim.job.training
    buckets = claim.prepared.buckets
    if job.place.is_leader:
        bucket_report.write(job, claim.prepared.table, buckets, batch)
    order = _order(claim, buckets)
    first = claim.resumed.step if claim.resumed else 0
    total = steps_of(order, training)
    if claim.resumed and job.place.is_leader:
        words = resume_words(claim.resumed, job_uid=job.file.job_uid, total=total)
        channel.send(channel.Event.NOTE, message=words)
        sys.stderr.write(f"{words}\n")
    plan = _plan(claim)
    engine = _engine(claim, plan)
    loader = Loader(
        claim.prepared,
        buckets,
        # The same order once more: it is asked from another thread.
        make_timeline(buckets, training, effective=batch.effective, origin=order.origin),
        training=training,
        place=job.place,
        encoding=LiveEncoding(job, ranks),
        pin=ranks.device.type == "cuda",
    )
    prefetch = Prefetcher(loader, first, total)
    return Session(
        job=job,
        ranks=ranks,
        fence=claim.fence,
        batch=batch,
        plan=plan,
        order=order,
        streams=streams_of(buckets, training),
        data_fingerprint=claim.prepared.fingerprint,
        engine=engine,
        writer=Writer(
            job.output,
            claim.fence,
            ranks,
            engine,
            keep=training.checkpoint.keep,
            adapters=Adapters(adapters.rank, adapters.alpha) if (adapters := adapters_of(job)) else None,
        ),
        interval=Interval(training.checkpoint, now=time.monotonic()),
        loader=loader,
        prefetch=prefetch,
        validation=claim.validation,
        metrics=Metrics(job.output, job.file.attempt) if job.place.is_leader else None,
        peak=peak_flops(torch.cuda.get_device_name()) if ranks.device.type == "cuda" else None,
        first=first,
        total=total,
    )


def _plan(claim: Claim) -> Plan:
    """How the job is fitted into the GPUs that it has: into the smallest, if they differ. Collective.

    Raises ConfigurationError where it does not fit.
    """
    job, ranks = claim.job, claim.ranks
    is_gpu = ranks.device.type == "cuda"
    found = ranks.gather((torch.cuda.mem_get_info()[1], torch.cuda.get_device_name()) if is_gpu else None)
    memory, name = min(found) if is_gpu else (None, "")
    plan = plan_for(
        job.training,
        read_architecture(model_folder(job)),
        world_size=job.place.world_size,
        local_world_size=job.place.local_world_size,
        gpu_memory_bytes=memory,
        gpu_name=name,
        image_tokens=max(picture_tokens(bucket.size.width, bucket.size.height) for bucket in claim.prepared.buckets),
        text_tokens=_text_tokens(claim.prepared),
    )
    if job.place.is_leader:
        sys.stderr.write(f"{plan.words()}\n")
    return plan


def _text_tokens(prepared: Prepared) -> int:
    """Tokens that a caption without a mask is padded to: all have one length."""
    _, (tokens, *_) = prepared.texts.read(prepared.empty_text)
    return int(tokens)


def load_model(claim: Claim) -> nn.Module:
    """The model on its device as it is before the first step: with adapters and initFrom, where the job has them."""
    job, device = claim.job, claim.ranks.device
    adapters = adapters_of(job)
    initial = None if claim.resumed else _initial_weights(job)
    base = model_folder(job) if adapters else initial or model_folder(job)
    blank = claim.resumed is not None and not adapters  # the checkpoint's take their place
    model = transformer.load(base, device=device, blank=blank)
    if adapters:
        lora.add_adapters(model, adapters, seed=job.training.seed)
        if initial:
            lora.load(model, adapters, initial)
        quantize(model, adapters.quantize_base, device=device)
    return model.to(device)


def _engine(claim: Claim, plan: Plan) -> Engine:
    """The model on its device, tuned and sharded, with the checkpoint's state where there is one."""
    job, ranks, resumed, training = claim.job, claim.ranks, claim.resumed, claim.job.training
    model = load_model(claim)
    scratch = Path(tempfile.gettempdir())
    kernel = tune(model, training, device=ranks.device, recomputed=plan.recomputed, scratch=scratch)
    if ranks.device.type == "cuda" or training.compile.mode is not CompileMode.NONE:
        _warm_up(claim, model, kernel)
    engine = initialize(model, plan.settled(training), job.place)
    if resumed:
        load(resumed, engine)
        channel.send(channel.Event.RESUMED, step=resumed.step)
    return engine


def _warm_up(claim: Claim, model: nn.Module, kernel: Attention) -> None:
    """Steps on zeros: what is compiled is compiled before the first step."""
    text_tokens = _text_tokens(claim.prepared)
    shapes = {Shape.of(bucket.size, text_tokens=text_tokens) for bucket in claim.prepared.buckets}

    def told(done: int, shapes: int, seconds: float) -> None:
        channel.send(channel.Event.NOTE, message=f"step on zeros: shape {done} of {shapes}, {seconds:.1f} s")
        channel.send(channel.Event.WORKING)

    warm_up(model, shapes, claim.job.training, kernel=kernel, told=told)


def _order(claim: Claim, buckets: Sequence[Bucket]) -> Timeline:
    """The order of samples: the checkpoint's, cut anew where the batch or the datasets' turns changed, or a new one."""
    make = partial(make_timeline, buckets, claim.job.training, effective=claim.batch.effective)
    if claim.resumed is None:
        return make()
    step, position = claim.resumed.step, claim.resumed.manifest.data
    if position.fingerprint != claim.prepared.fingerprint:
        channel.send(channel.Event.NOTE, message=f"the data changed: their order begins anew at step {step}")
        return make(origin=Origin(step))
    same = make(origin=position.origin)
    if same.digest == position.order:
        return same
    return make(
        origin=carried_over(position.reached, was=position.streams, now=streams_of(buckets, claim.job.training))
    )
