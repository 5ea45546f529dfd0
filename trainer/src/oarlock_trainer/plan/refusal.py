"""The words for a job that does not fit into its GPUs: the arithmetic, and every single change that would make it fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.optimization import EmaDevice, OptimizerName
from oarlock_api.weights import Lora
from oarlock_trainer.plan.gpus import larger
from oarlock_trainer.plan.memory import GB, need
from oarlock_trainer.plan.parameters import adapters
from oarlock_trainer.plan.recomputation import allowed, fewest
from oarlock_trainer.plan.work import DDP, FROZEN_BYTES, Work, same_effective_batch, stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oarlock_api.training import Training

_MOST_NODES = 64
"""Beyond this, more nodes are no advice."""


def words(work: Work, training: Training, *, limit: int) -> str:
    """Several lines. `limit` in bytes; `work` with the stage that needs least of those that it may have."""
    choices = allowed(training.activation_checkpointing, blocks=work.shape.blocks)
    memory = need(work, recomputed=choices[-1])
    used = f"{_gigabytes(memory.total)} are needed on each, {_gigabytes(limit)} can be used"
    lines = [
        f"training does not fit into these GPUs: {used} (a model, computed before weights are read; GB = 1e9 bytes)",
        *(f"  {one.name:<12} {one.bytes / GB:>7.1f}   {one.arithmetic}" for one in memory.components),
    ]
    remedies = list(_remedies(work, training, choices, limit=limit))
    if not remedies:
        return "\n".join(
            [*lines, "No single change makes it fit: take several, method LoRA, or GPUs with more memory."]
        )
    return "\n".join([*lines, "Any of these makes it fit:", *(f"  {remedy}" for remedy in remedies)])


def _remedies(work: Work, training: Training, choices: range, *, limit: int) -> Iterator[str]:
    every = range(work.shape.blocks + 1)
    freer = fewest(work, every, limit=limit)
    if freer is not None:
        yield f"activationCheckpointing.mode Auto: {_cost(work, freer)}"
    for name, changed in _changes(work, training, choices, limit):
        recomputed = fewest(changed, choices, limit=limit)
        if recomputed is not None:
            yield f"{name}: {_cost(changed, recomputed)}"
        elif freer is None and (both := fewest(changed, every, limit=limit)) is not None:
            yield f"{name} and activationCheckpointing.mode Auto: {_cost(changed, both)}"
    size = need(work, recomputed=choices[-1]).total
    if others := [one for one in larger(limit) if size <= one.memory]:
        yield f"GPUs with more memory: {', '.join(one.name for one in others)}"


def _changes(work: Work, training: Training, choices: range, limit: int) -> Iterator[tuple[str, Work]]:
    """(what to set, the work that it makes), the least costly first. Not all of them fit."""
    yield from _smaller_batch(work, training, choices, limit)
    if not work.overlap and work.stage != DDP:
        yield "engine.overlapCommunication true", replace(work, overlap=True)
    if work.ema is EmaDevice.GPU:
        yield "ema.device CPU", replace(work, ema=EmaDevice.CPU)
    if not work.compiled:
        yield "compile.mode Default", replace(work, compiled=True)
    yield from _smaller_base(work) if work.adapters else _smaller_states(work, choices, limit)


def _smaller_base(work: Work) -> Iterator[tuple[str, Work]]:
    for kind, size in FROZEN_BYTES.items():
        if size < work.frozen_bytes:
            yield f"lora.quantizeBase {kind}", replace(work, frozen_bytes=size)


def _smaller_states(work: Work, choices: range, limit: int) -> Iterator[tuple[str, Work]]:
    """Weights, gradients and optimizer states of a run that trains all parameters, spread further or kept smaller."""
    for stage in range(work.stage + 1, 4):
        yield f"engine.strategy DeepSpeed and engine.zeroStage {stage}", replace(work, stage=stage)
    yield from _more_nodes(work, choices, limit)
    if work.optimizer is OptimizerName.ADAMW:
        for name in (OptimizerName.ADAMW_8BIT, OptimizerName.LION):
            yield f"optimizer.name {name}", replace(work, optimizer=name)
    if not work.offload and work.stage != DDP:
        yield "engine.offloadOptimizer CPU (slow)", replace(work, offload=True)
    small = adapters(work.shape, Lora())
    yield "method LoRA", replace(work, parameters=small, adapters=True, stage=DDP, offload=False)


def _smaller_batch(work: Work, training: Training, choices: range, limit: int) -> Iterator[tuple[str, Work]]:
    """The largest micro-batch that fits with the same effective batch."""
    smaller = [one for one in same_effective_batch(work) if one.samples < work.samples]
    settled = [replace(one, stage=stages(one, training)[-1]) for one in smaller]
    for one in _first_that_fits(settled, choices, limit):
        yield f"batchSize {one.samples} with gradientAccumulation {one.accumulation} (the same effective batch)", one


def _more_nodes(work: Work, choices: range, limit: int) -> Iterator[tuple[str, Work]]:
    """The fewest nodes that fit, where the optimizer's state is spread over them."""
    if work.stage == DDP:
        return
    wider = [replace(work, ranks=nodes * work.ranks_per_node) for nodes in range(work.nodes + 1, _MOST_NODES + 1)]
    for one in _first_that_fits(wider, choices, limit):
        yield f"{one.nodes} nodes (effective batch {one.batch.effective})", one


def _first_that_fits(works: Sequence[Work], choices: range, limit: int) -> list[Work]:
    """One, with as many recomputed blocks as the job has it; if none fits so, with as many as there are; or none."""
    as_asked = [one for one in works if need(one, recomputed=choices[-1]).total <= limit]
    return (as_asked or [one for one in works if need(one, recomputed=one.shape.blocks).total <= limit])[:1]


def _cost(work: Work, recomputed: int) -> str:
    total = _gigabytes(need(work, recomputed=recomputed).total)
    return f"{total} with {recomputed} of {work.shape.blocks} blocks recomputed"


def _gigabytes(size: int) -> str:
    return f"{size / GB:.1f} GB"
