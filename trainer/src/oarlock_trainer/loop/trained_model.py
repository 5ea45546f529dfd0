"""The model that an attempt trains: how it fits into its GPUs, its weights, and the engine that spreads it over the ranks."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.engine import CompileMode
from oarlock_trainer.checkpoint.load import load
from oarlock_trainer.data.pair_sizes import image_tokens, reference_in
from oarlock_trainer.engine.initialize import initialize, sharder
from oarlock_trainer.loop import measured_memory
from oarlock_trainer.loop.setup import adapters_of, initial_weights, model_folder, saved_adapters
from oarlock_trainer.models import transformer
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.compute import kept_code
from oarlock_trainer.models.compute.frozen_weights import quantize
from oarlock_trainer.models.families import family_of, flavor_of, masks_text
from oarlock_trainer.models.tuning import tune
from oarlock_trainer.models.warm_up import Shape, warm_up
from oarlock_trainer.plan import compiling, refusal
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.plan.planner import plan_for
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from torch import nn

    from oarlock_api.engine import Attention
    from oarlock_api.training import Training
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.loop.setup import Setup
    from oarlock_trainer.plan.planner import Plan

ZERO_STAGE = "ACCELERATE_DEEPSPEED_ZERO_STAGE"


def plan_of(setup: Setup) -> Plan:
    """How the job is fitted into the GPUs that it has: into the smallest, if they differ. Collective.

    Raises ConfigurationError where it does not fit.
    """
    job, ranks = setup.job, setup.ranks
    is_gpu = ranks.device.type == "cuda"
    found = ranks.gather((torch.cuda.mem_get_info()[1], torch.cuda.get_device_name()) if is_gpu else None)
    memory, name = min(found) if is_gpu else (None, "")
    tokens, frames = max(_samples(setup))
    plan = plan_for(
        job.training,
        read_architecture(model_folder(job), family_of(job.training.model)),
        world_size=job.rank_info.world_size,
        local_world_size=job.rank_info.local_world_size,
        gpu_memory_bytes=memory,
        gpu_name=name,
        image_tokens=tokens,
        frames=frames,
        text_tokens=text_tokens(setup),
    )
    if job.rank_info.is_leader:
        sys.stderr.write(f"{plan.words()}\n")
    return plan


def tell_accelerate(plan: Plan, environment: MutableMapping[str, str]) -> None:
    """Set accelerate's variable for ZeRO's stage to the one that runs; there is none for DDP."""
    if plan.zero_stage:
        environment[ZERO_STAGE] = str(plan.zero_stage)


def text_tokens(setup: Setup) -> int:
    """Tokens of the longest text that a batch may have: all are padded to it, unless padding is masked."""
    prepared, training = setup.prepared, setup.job.training
    if prepared.texts is None or masks_text(training):  # with a mask the empty caption has one token
        return family_of(training.model).read_encoded(model_folder(setup.job), flavor_of(training.model)).tokens
    _, (tokens, *_) = prepared.texts.read(prepared.empty_text)
    return int(tokens)


def _samples(setup: Setup) -> set[tuple[int, int]]:
    """Image tokens and frames of the samples of all buckets."""
    model, datasets = setup.job.training.model, setup.job.training.data.datasets
    sizes = {(bucket.dataset, bucket.size) for bucket in setup.prepared.buckets}
    return {(image_tokens(datasets[place], size, model), size.frames) for place, size in sizes}


def load_model(setup: Setup, shard: Callable[[nn.Parameter], None] | None = None) -> nn.Module:
    """The model on its device as it is before the first step: with adapters and initFrom, where the job has them.

    With `shard` no rank has more than one whole parameter of safetensors at a time, and rank 0 alone reads them: it sends
    each to the others. Collective then.
    """
    job, device = setup.job, setup.ranks.device
    family = family_of(job.training.model)
    adapters = adapters_of(job)
    initial = None if setup.resumed else initial_weights(job)
    base = model_folder(job) if adapters else initial or model_folder(job)
    blank = setup.resumed is not None and not adapters  # the checkpoint's take their place
    model = transformer.load(
        base,
        device=device,
        blank=blank,
        placed=shard or (lambda _parameter: None),
        reads=shard is None or job.rank_info.is_leader,
        ahead=job.rank_info.local_rank == 0,
    )
    if adapters:
        lora.add_adapters(model, adapters, family.presets, seed=job.training.seed)
        if initial:
            lora.load(model, adapters, initial)
        quantize(family.blocks_of(model), adapters.quantize_base, device=device)
    return model.to(device)


def make_engine(setup: Setup, plan: Plan) -> tuple[Engine, Plan]:
    """The model on its device, tuned and sharded, with the checkpoint's state where there is one; and the plan that it fits.

    Raises ConfigurationError where a step does not fit into the GPUs.
    """
    job, ranks, resumed = setup.job, setup.ranks, setup.resumed
    training = _with_graphs(setup)
    settled = plan.settled(training)
    tell_accelerate(plan, os.environ)
    shard = sharder(settled, job.rank_info)
    model = load_model(setup, shard)
    scratch = Path(tempfile.gettempdir())
    kernel = tune(
        model,
        training,
        device=ranks.device,
        recomputed=plan.recomputed,
        scratch=scratch,
        lean=plan.work.lean,
        ranks_per_node=job.rank_info.local_world_size,
    )
    warms_up = ranks.device.type == "cuda" or training.compile.mode is not CompileMode.NONE
    engine = initialize(model, settled, job.rank_info)
    if warms_up:
        plan = _warm_up(setup, model, kernel, plan, whole=shard is None)
    if resumed:
        load(resumed, engine, adapters=saved_adapters(job))
        channel.send(channel.Event.RESUMED, step=resumed.step)
    return engine, plan


def _with_graphs(setup: Setup) -> Training:
    """The job's training, where it compiles with `compile.dynamic` decided by the shapes of its batches."""
    training = setup.job.training
    if training.compile.mode is CompileMode.NONE:
        return training
    shapes = len({tokens for tokens, _ in _samples(setup)})
    settled = compiling.settled(training.compile, shapes=shapes, masked=masks_text(training))
    return training.model_copy(update={"compile": settled})


def _warm_up(setup: Setup, model: Any, kernel: Attention, plan: Plan, *, whole: bool) -> Plan:
    """Steps on zeros: what is compiled is compiled before the first step, and the plan is held against the GPUs' memory.

    `whole`: the ranks' weights are not sharded.
    """
    longest = text_tokens(setup)
    asked, datasets = setup.job.training.model, setup.job.training.data.datasets
    grid = family_of(asked).grid
    kinds = {(one.size, reference_in(datasets[one.dataset], asked)) for one in setup.prepared.buckets}
    shapes = {
        Shape.of(
            height=size.height,
            width=size.width,
            frames=size.frames,
            text_tokens=longest,
            grid=grid,
            reference=reference,
        )
        for size, reference in kinds
    }
    plans = [plan]

    def fit(step: Callable[[], None]) -> None:
        fitted, peak = measured_memory.fit(
            plan,
            setup.job.training,
            step,
            recompute=partial(setattr, model.forward, "recomputed"),
            gauge=measured_memory.GpuGauge(setup.ranks.device),
            gather=setup.ranks.gather,
        )
        plans.append(fitted)
        if setup.job.rank_info.is_leader:
            took = f"a step on zeros took {peak / 1e9:.1f} GB of a GPU at its peak (measured)"
            more = "" if fitted is plan else f" with more blocks recomputed than were planned; {fitted.words()}"
            channel.tell(f"{took}{more}")

    def told(done: int, shapes: int, seconds: float) -> None:
        channel.send(channel.Event.NOTE, message=f"step on zeros: shape {done} of {shapes}, {seconds:.1f} s")
        channel.send(channel.Event.WORKING)

    job, device = setup.job, setup.ranks.device
    compiles = job.training.compile.mode is not CompileMode.NONE
    if compiles:
        kept_code.bring(job.output, device)
    measures = whole and device.type == "cuda"
    try:
        warm_up(model, shapes, job.training, kernel=kernel, told=told, fit=fit if measures else None)
    except RuntimeError as error:
        if not measured_memory.out_of_memory(error):
            raise
        limit = plan.gpus.memory or 0
        words = refusal.measured(plan.work, job.training, limit=limit, recomputed=plans[-1].recomputed, peak=None)
        raise ConfigurationError(words) from error
    if compiles and job.rank_info.rank == job.rank_info.local_rank:
        kept_code.keep(job.output, device)
    return plans[-1]
