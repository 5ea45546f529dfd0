"""The model that an attempt trains: how it fits into its GPUs, its weights, and the engine that spreads it over the ranks."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oarlock_api.engine import CompileMode
from oarlock_trainer import channel
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.claim import adapters_of, initial_weights, model_folder, saved_adapters
from oarlock_trainer.engine.initialize import initialize, sharder
from oarlock_trainer.models.flux import kept_code, lora, transformer
from oarlock_trainer.models.flux.frozen_weights import quantize
from oarlock_trainer.models.flux.tuning import tune
from oarlock_trainer.models.flux.warm_up import Shape, warm_up
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.plan.planner import plan_for
from oarlock_trainer.plan.work import picture_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from oarlock_api.engine import Attention
    from oarlock_trainer.claim import Claim
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.plan.planner import Plan
    from oarlock_trainer.preprocess.pipeline import Prepared


def plan_of(claim: Claim) -> Plan:
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


def load_model(claim: Claim, shard: Callable[[nn.Parameter], None] | None = None) -> nn.Module:
    """The model on its device as it is before the first step: with adapters and initFrom, where the job has them.

    With `shard` no rank has more than one whole parameter of safetensors at a time, and rank 0 alone reads them: it sends
    each to the others. Collective then.
    """
    job, device = claim.job, claim.ranks.device
    adapters = adapters_of(job)
    initial = None if claim.resumed else initial_weights(job)
    base = model_folder(job) if adapters else initial or model_folder(job)
    blank = claim.resumed is not None and not adapters  # the checkpoint's take their place
    model = transformer.load(
        base,
        device=device,
        blank=blank,
        placed=shard or (lambda _parameter: None),
        reads=shard is None or job.place.is_leader,
    )
    if adapters:
        lora.add_adapters(model, adapters, seed=job.training.seed)
        if initial:
            lora.load(model, adapters, initial)
        quantize(model, adapters.quantize_base, device=device)
    return model.to(device)


def make_engine(claim: Claim, plan: Plan) -> Engine:
    """The model on its device, tuned and sharded, with the checkpoint's state where there is one."""
    job, ranks, resumed, training = claim.job, claim.ranks, claim.resumed, claim.job.training
    settled = plan.settled(training)
    shard = sharder(settled, job.place)
    model = load_model(claim, shard)
    scratch = Path(tempfile.gettempdir())
    kernel = tune(model, training, device=ranks.device, recomputed=plan.recomputed, scratch=scratch)
    warms_up = ranks.device.type == "cuda" or training.compile.mode is not CompileMode.NONE
    if warms_up and not shard:
        _warm_up(claim, model, kernel)
    engine = initialize(model, settled, job.place)
    if warms_up and shard:
        _warm_up(claim, model, kernel)  # the engine brings the weights together
    if resumed:
        load(resumed, engine, adapters=saved_adapters(job))
        channel.send(channel.Event.RESUMED, step=resumed.step)
    return engine


def _warm_up(claim: Claim, model: nn.Module, kernel: Attention) -> None:
    """Steps on zeros: what is compiled is compiled before the first step."""
    text_tokens = _text_tokens(claim.prepared)
    shapes = {Shape.of(bucket.size, text_tokens=text_tokens) for bucket in claim.prepared.buckets}

    def told(done: int, shapes: int, seconds: float) -> None:
        channel.send(channel.Event.NOTE, message=f"step on zeros: shape {done} of {shapes}, {seconds:.1f} s")
        channel.send(channel.Event.WORKING)

    job, device = claim.job, claim.ranks.device
    compiles = job.training.compile.mode is not CompileMode.NONE
    if compiles:
        kept_code.bring(job.output, device)
    warm_up(model, shapes, job.training, kernel=kernel, told=told)
    if compiles and job.place.rank == job.place.local_rank:
        kept_code.keep(job.output, device)
