"""The words for a job that does not fit into its GPUs: the arithmetic, and every single change that would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.plan.gpus import larger, shown_bytes
from oarlock_trainer.plan.memory import GB, need
from oarlock_trainer.plan.recomputation import allowed
from oarlock_trainer.plan.remedies import remedies

if TYPE_CHECKING:
    from oarlock_api.training import Training
    from oarlock_trainer.plan.remedies import Remedy
    from oarlock_trainer.plan.work import Workload


def words(work: Workload, training: Training, *, limit: int) -> str:
    """Several lines. `limit` in bytes; `work` with the stage that needs least of those that it may have."""
    choices = allowed(training.activation_checkpointing, blocks=work.shape.blocks)
    memory = need(work, recomputed=choices[-1])
    used = f"{_gigabytes(memory.total)} are needed on each, {_gigabytes(limit)} can be used"
    lines = [
        f"training does not fit into these GPUs: {used} (a model, computed before weights are read; GB = 1e9 bytes)",
        *(f"  {one.name:<12} {one.bytes / GB:>7.1f}   {one.arithmetic}" for one in memory.components),
    ]
    return "\n".join([*lines, *_offers(work, training, limit=limit, least=memory.total)])


def measured(work: Workload, training: Training, *, limit: int, recomputed: int, peak: int | None) -> str:
    """The same after a step on zeros that took `peak` bytes of a GPU, or more than it has (None).

    What is offered fits by the model, and leaves as much room as the model was wrong by.
    """
    model = need(work, recomputed=recomputed).total
    took = "had no memory left" if peak is None else f"took {_gigabytes(peak)} (measured)"
    line = (
        f"training does not fit into these GPUs: a step on zeros with {recomputed} of {work.shape.blocks} blocks recomputed "
        f"{took}, {_gigabytes(limit)} can be used, and the planner's model says {_gigabytes(model)}"
    )
    wrong = max((peak or shown_bytes(limit)) - model, 0)
    return "\n".join([line, *_offers(work, training, limit=limit - wrong, least=model + wrong)])


def _offers(work: Workload, training: Training, *, limit: int, least: int) -> list[str]:
    """Lines with what fits into `limit` bytes; `least` are those that the job as it is needs."""
    offers = [_offer(remedy) for remedy in remedies(work, training, limit=limit)]
    if others := [one.name for one in larger(limit) if least <= one.memory]:
        offers.append(f"GPUs with more memory: {', '.join(others)}")
    if not offers:
        return ["No single change makes it fit: take several, method LoRA, or GPUs with more memory."]
    return ["Any of these makes it fit:", *(f"  {offer}" for offer in offers)]


def _offer(remedy: Remedy) -> str:
    total = _gigabytes(need(remedy.work, recomputed=remedy.recomputed).total)
    return f"{remedy.words}: {total} with {remedy.recomputed} of {remedy.work.shape.blocks} blocks recomputed"


def _gigabytes(size: int) -> str:
    return f"{size / GB:.1f} GB"
