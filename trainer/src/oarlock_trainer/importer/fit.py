"""Whether the imported job fits into its GPUs, by the planner's own model, in words for the list of what is to do.

A job that SimpleTuner ran may need several times the memory here: it keeps weights and moments in bfloat16 on one GPU,
where a job keeps float32 and spreads it over many. No file is read: the model is taken to be FLUX.1's own, the GPUs to be
those that the planner assumes, and pictures to be squares of the largest resolution. `oarlock-trainer plan` knows more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.engine import ActivationCheckpointing, ActivationCheckpointingMode, Strategy
from oarlock_api.weights import Method
from oarlock_trainer.plan.gpus import ASSUMED, gpu, larger
from oarlock_trainer.plan.memory import GB, need
from oarlock_trainer.plan.parameters import Architecture
from oarlock_trainer.plan.recomputation import allowed, fewest
from oarlock_trainer.plan.remedies import remedies
from oarlock_trainer.plan.work import DDP, stages, work_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_api.spec import TrainingJobSpec
    from oarlock_api.training import Training
    from oarlock_trainer.plan.work import Work

_WIDER = ((1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8))
"""Nodes, and GPUs of each, that are offered to a job with too few."""


def task(spec: TrainingJobSpec) -> str:
    """What to do about the memory of a GPU, in a line or several; empty where the job has no GPUs."""
    if spec.training is None or not spec.gpus_per_node:
        return ""
    training, limit = spec.training, gpu(ASSUMED).memory
    work = _work(training, nodes=spec.nodes, gpus=spec.gpus_per_node)
    where = f"(a model, for {spec.nodes} x {spec.gpus_per_node} {ASSUMED}, which are assumed)"
    recomputed = _fitting(work, training, limit)
    if recomputed is not None:
        needed = need(work, recomputed=recomputed).total
        return f"see that the GPUs are as large: {_of_each(needed, limit)} {where}"
    memory = need(work, recomputed=allowed(training.activation_checkpointing, blocks=work.shape.blocks)[-1])
    parts = ", ".join(f"{one.name} {one.bytes / GB:.1f}" for one in memory.components)
    offers = [*_more_gpus(work, training, limit), *_changes(work, training, limit)]
    if others := [one.name for one in larger(limit) if memory.total <= one.memory]:
        offers.append(f"GPUs with more memory: {', '.join(others)}")
    hope = (
        "any of these makes it fit:" if offers else "no single change makes it fit: take LoRA, or more and larger GPUs"
    )
    lines = [
        f"change the job, it does not fit into its GPUs: {_of_each(memory.total, limit)} {where}",
        f"GB: {parts}",
        hope,
        *(f"  {offer}" for offer in offers),
    ]
    return "\n      ".join(lines)


def _work(training: Training, *, nodes: int, gpus: int) -> Work:
    """What the job asks of its GPUs, with the stage that needs least of those that it may have."""
    work = work_of(training, Architecture(), ranks=nodes * gpus, ranks_per_node=gpus)
    return replace(work, stage=stages(work, training)[-1])


def _fitting(work: Work, training: Training, limit: int) -> int | None:
    return fewest(work, allowed(training.activation_checkpointing, blocks=work.shape.blocks), limit=limit)


def _more_gpus(work: Work, training: Training, limit: int) -> Iterator[str]:
    """The fewest GPUs over which weights that are all trained can be spread, if there are any."""
    if training.method is not Method.FULL:
        return
    words, changed = "", training
    if work.stage == DDP:
        words += ", training.engine.strategy: Auto"
        changed = changed.model_copy(update={"engine": training.engine.model_copy(update={"strategy": Strategy.AUTO})})
    if training.activation_checkpointing.mode is not ActivationCheckpointingMode.FULL:
        words += ", training.activationCheckpointing.mode: Auto"
        changed = changed.model_copy(update={"activation_checkpointing": ActivationCheckpointing()})
    for nodes, gpus in _WIDER:
        wider = _work(changed, nodes=nodes, gpus=gpus)
        recomputed = _fitting(wider, changed, limit)
        if wider.ranks > work.ranks and recomputed is not None:
            total = _gigabytes(need(wider, recomputed=recomputed).total)
            batch = f"effective batch {wider.batch.effective} instead of {work.batch.effective}"
            yield f"nodes: {nodes}, gpusPerNode: {gpus}{words} ({batch}): {total}"
            return


def _changes(work: Work, training: Training, limit: int) -> Iterator[str]:
    for one in remedies(work, training, limit=limit):
        yield f"training: {one.words}: {_gigabytes(need(one.work, recomputed=one.recomputed).total)}"


def _of_each(needed: int, limit: int) -> str:
    return f"{_gigabytes(needed)} of each are needed, {_gigabytes(limit)} can be used"


def _gigabytes(size: int) -> str:
    return f"{size / GB:.1f} GB"
