"""What is recomputed in the backward pass: what the job allows, and the fewest blocks that fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.engine import ActivationCheckpointingMode
from oarlock_trainer.plan.memory import need

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_api.engine import ActivationCheckpointing
    from oarlock_trainer.plan.work import Workload


def allowed(checkpointing: ActivationCheckpointing, *, blocks: int) -> range:
    """Numbers of recomputed blocks that the job's setting leaves open, the fewest first."""
    if checkpointing.mode is ActivationCheckpointingMode.AUTO:
        return range(blocks + 1)
    if checkpointing.mode is ActivationCheckpointingMode.NONE:
        percent = 0
    elif checkpointing.mode is ActivationCheckpointingMode.FULL:
        percent = 100
    else:
        percent = checkpointing.percent or 0
    number = -(-blocks * percent // 100)  # rounded up: a share that was asked for to save memory saves it
    return range(number, number + 1)


def variants(work: Workload, checkpointing: ActivationCheckpointing) -> tuple[Workload, ...]:
    """`work` as it is, and lean where the job leaves that open: it is the compiler that recomputes a part of a block."""
    if work.compiled and checkpointing.mode is ActivationCheckpointingMode.AUTO:
        return (work, replace(work, lean=True))
    return (work,)


def fewest(work: Workload, choices: Iterable[int], *, limit: int | None) -> int | None:
    """The first of `choices` with which a GPU needs no more than `limit` bytes; None where none does."""
    return next((one for one in choices if limit is None or need(work, recomputed=one).total <= limit), None)
