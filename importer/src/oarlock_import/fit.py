"""Whether the imported job fits into its GPUs, by the planner's own model, in words for the list of what is to do.

A job that SimpleTuner ran may need several times the memory here: it keeps weights and moments in bfloat16 on one GPU,
where a job keeps float32 and spreads it over many. No file is read: the model is taken to be its family's published one,
the GPUs to be those that the planner assumes, and pictures to be squares of the largest resolution. `oarlock-trainer plan`
knows more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_trainer.models.families import family_of
from oarlock_trainer.plan.gpus import ASSUMED, gpu, larger
from oarlock_trainer.plan.memory import GB, need
from oarlock_trainer.plan.recomputation import allowed, fewest
from oarlock_trainer.plan.remedies import remedies
from oarlock_trainer.plan.work import stages, work_of

if TYPE_CHECKING:
    from oarlock_api.spec import TrainingJobSpec


def task(spec: TrainingJobSpec) -> str:
    """What to do about the memory of a GPU, in a line or several; empty where the job has no GPUs."""
    if spec.training is None or not spec.gpus_per_node:
        return ""
    training, limit = spec.training, gpu(ASSUMED).memory
    ranks = spec.nodes * spec.gpus_per_node
    work = work_of(training, family_of(training.model).published, ranks=ranks, ranks_per_node=spec.gpus_per_node)
    work = replace(work, stage=stages(work, training)[-1])  # that which needs least of those that the job may have
    choices = allowed(training.activation_checkpointing, blocks=work.shape.blocks)
    where = f"(a model, for {spec.nodes} x {spec.gpus_per_node} {ASSUMED}, which are assumed)"
    recomputed = fewest(work, choices, limit=limit)
    if recomputed is not None:
        needed = need(work, recomputed=recomputed).total
        return f"see that the GPUs are as large: {_of_each(needed, limit)} {where}"
    memory = need(work, recomputed=choices[-1])
    parts = ", ".join(f"{one.name} {one.bytes / GB:.1f}" for one in memory.components)
    offers = [
        f"{one.words}: {_gigabytes(need(one.work, recomputed=one.recomputed).total)}"
        for one in remedies(work, training, limit=limit)
    ]
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


def _of_each(needed: int, limit: int) -> str:
    return f"{_gigabytes(needed)} of each are needed, {_gigabytes(limit)} can be used"


def _gigabytes(size: int) -> str:
    return f"{size / GB:.1f} GB"
