"""The words for a job that does not fit into its GPUs: the arithmetic, and every single change that would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.plan.gpus import larger
from oarlock_trainer.plan.memory import GB, need
from oarlock_trainer.plan.recomputation import allowed
from oarlock_trainer.plan.remedies import remedies

if TYPE_CHECKING:
    from oarlock_api.training import Training
    from oarlock_trainer.plan.remedies import Remedy
    from oarlock_trainer.plan.work import Work


def words(work: Work, training: Training, *, limit: int) -> str:
    """Several lines. `limit` in bytes; `work` with the stage that needs least of those that it may have."""
    choices = allowed(training.activation_checkpointing, blocks=work.shape.blocks)
    memory = need(work, recomputed=choices[-1])
    used = f"{_gigabytes(memory.total)} are needed on each, {_gigabytes(limit)} can be used"
    lines = [
        f"training does not fit into these GPUs: {used} (a model, computed before weights are read; GB = 1e9 bytes)",
        *(f"  {one.name:<12} {one.bytes / GB:>7.1f}   {one.arithmetic}" for one in memory.components),
    ]
    offers = [_offer(remedy) for remedy in remedies(work, training, limit=limit)]
    if others := [one.name for one in larger(limit) if memory.total <= one.memory]:
        offers.append(f"GPUs with more memory: {', '.join(others)}")
    if not offers:
        return "\n".join(
            [*lines, "No single change makes it fit: take several, method LoRA, or GPUs with more memory."]
        )
    return "\n".join([*lines, "Any of these makes it fit:", *(f"  {offer}" for offer in offers)])


def _offer(remedy: Remedy) -> str:
    total = _gigabytes(need(remedy.work, recomputed=remedy.recomputed).total)
    return f"{remedy.words}: {total} with {remedy.recomputed} of {remedy.work.shape.blocks} blocks recomputed"


def _gigabytes(size: int) -> str:
    return f"{size / GB:.1f} GB"
