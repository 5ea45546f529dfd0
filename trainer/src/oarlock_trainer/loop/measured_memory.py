"""The plan held against the memory that a step really takes, before the first one.

A step on zeros of the largest shape runs in the memory of a real one: weights, masters and moments are there, and a
placeholder for what the engine makes later. Its peak on the rank that takes most decides. Where that is more than a plan
may fill, or a GPU has no memory left, more blocks are recomputed, as few as fit, and the step runs again. Nothing is
compiled anew for that. Where the job does not leave it open, or no number fits, training ends before its first step.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Protocol

import torch

from oarlock_trainer.plan import refusal
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.planner import with_recomputed
from oarlock_trainer.plan.recomputation import allowed
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.plan.planner import Plan

_THERE = ("weights", "optimizer", "EMA")
"""Components that an engine has from its start: DeepSpeed makes moments later."""
_LATER = ("gradients", "buckets", "saving", "encoder", "captions")
"""Those that the first steps bring, and that a step on zeros does not."""


class Gauge(Protocol):
    """A device's memory. Sizes in bytes."""

    def allocated(self) -> int:
        """What tensors take now."""

    def hold(self, size: int) -> object:
        """Take memory, until the result is dropped."""

    def peak_of(self, step: Callable[[], None]) -> int | None:
        """The most that tensors took while `step` ran; None where it ended for want of memory."""


class GpuGauge:
    """The allocator of this rank's GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocated(self) -> int:
        """What tensors take now."""
        return torch.cuda.memory_allocated(self._device)

    def hold(self, size: int) -> object:
        """Take memory, until the result is dropped."""
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def peak_of(self, step: Callable[[], None]) -> int | None:
        """The most that tensors took while `step` ran; None where it ended for want of memory."""
        torch.cuda.reset_peak_memory_stats(self._device)
        try:
            step()
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        else:
            return torch.cuda.max_memory_allocated(self._device)
        # Only now: until here the error's frames held what the step had made.
        gc.collect()
        torch.cuda.empty_cache()
        return None


def out_of_memory(error: BaseException) -> bool:
    """Whether a GPU had no memory left: the compiler, and cuBLAS, say it in words of their own."""
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "alloc_failed" in words


def fit(
    plan: Plan,
    training: Training,
    step: Callable[[], None],
    *,
    recompute: Callable[[int], None],
    gauge: Gauge,
    gather: Callable[[int | None], Sequence[int | None]],
) -> tuple[Plan, int]:
    """`plan`, with as many more recomputed blocks as it takes, and the peak in bytes. Collective.

    `step` runs forward and backward on zeros; `recompute` sets how many blocks it recomputes; `gather` tells all ranks'
    values. Raises ConfigurationError with what was measured, and what would fit, where no plan that the job allows does.
    """
    choices = allowed(training.activation_checkpointing, blocks=plan.work.shape.blocks)
    limit, most = plan.gpus.memory or 0, choices[-1]
    absent = _absent(plan, gauge.allocated())

    def whole_step() -> None:
        held = gauge.hold(absent)
        step()
        del held

    def measure(number: int) -> int | None:
        recompute(number)
        peaks = gather(gauge.peak_of(whole_step))
        return None if None in peaks else max(peak for peak in peaks if peak is not None)

    lowest, number = plan.recomputed, plan.recomputed
    measure(number)  # compiles, which takes memory of its own
    fitting: tuple[int, int] | None = None
    known: tuple[int, int] | None = None
    while fitting is None or lowest <= number < fitting[0]:
        peak = measure(number)
        if peak is not None:
            known = (number, peak)
        if peak is not None and peak <= limit:
            fitting = (number, peak)
        else:
            lowest = number + 1
            if fitting is None and lowest > most:
                raise ConfigurationError(
                    refusal.measured(plan.work, training, limit=limit, recomputed=number, peak=peak)
                )
        number = _fewest(plan, range(lowest, most + 1), known, limit=limit) if known else most
    recompute(fitting[0])
    return (plan if fitting[0] == plan.recomputed else with_recomputed(plan, fitting[0])), fitting[1]


def _absent(plan: Plan, allocated: int) -> int:
    """Bytes of a real step that are not there yet, and that a step on zeros does not make."""
    there = sum(plan.memory.of(name) for name in _THERE)
    return max(there - allocated, 0) + sum(plan.memory.of(name) for name in _LATER)


def _fewest(plan: Plan, choices: Sequence[int], known: tuple[int, int], *, limit: int) -> int:
    """The fewest recomputed blocks that should fit, by a peak that is known for another number; else the most."""
    number, peak = known
    other = peak - need(plan.work, recomputed=number).total
    fitting = (one for one in choices if need(plan.work, recomputed=one).total + other <= limit)
    return next(fitting, choices[-1] if choices else number)
