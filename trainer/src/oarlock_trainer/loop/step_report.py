"""The figures of a step: where each one's value comes from. Times and memory are rank 0's, the loss is of all ranks."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.status import StepPart
from oarlock_trainer.loop.metrics import rounded
from oarlock_trainer.plan.flops import model_flops_utilization, training_flops
from oarlock_trainer.runtime import channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.data.batches import StepBatch
    from oarlock_trainer.loop.session import Session
    from oarlock_trainer.loop.step_clock import Split


def report(
    session: Session,
    batch: StepBatch,
    split: Split,
    *,
    step: int,
    loss: float,
    by_noise: Mapping[str, float],
    rate: float,
    lag: float | None,
) -> None:
    """Tell of a step: rank 0 its figures, the others that it is done. `lag`: of the slowest rank (rank_pace)."""
    if session.metrics is None:
        channel.send(channel.Event.STEP, step=step, total=session.total)
        return
    figures = Figures(
        step=step,
        total_steps=session.total,
        epoch=batch.epoch,
        loss=rounded(loss),
        learning_rate=rate * session.engine.rate_factor,
        seconds_per_step=rounded(split.seconds),
        images_per_second=rounded(split.per_second(session.batch.effective)),
        mfu=rounded(_mfu(session, batch, split.seconds)),
        data_wait_share=rounded(split.share(StepPart.DATA)),
        gradient_norm=rounded(session.engine.gradient_norm()),
        skipped_updates=session.engine.skipped,
        memory_peak_bytes=_memory_peak(session.ranks.device),
        slowest_rank_lag=rounded(lag),
    )
    session.metrics.step(figures, parts=split.parts, by_noise=by_noise)


def _memory_peak(device: torch.device) -> int:
    """Most bytes that tensors took on the GPU at once in this process's life; on the CPU the process as a whole."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _mfu(session: Session, batch: StepBatch, seconds: float) -> float | None:
    """Share of the GPUs' peak; None on the CPU and on GPUs that are not known."""
    if session.peak is None:
        return None
    each = training_flops(
        session.shape,
        tokens=batch.tokens,
        text_share=batch.text_share,
        frozen=session.adapters is not None,
        regularizes=batch.regularizes,
    )
    return model_flops_utilization(
        flops=session.batch.effective * each,
        seconds=seconds,
        devices=session.ranks.rank_info.world_size,
        peak=session.peak,
    )
