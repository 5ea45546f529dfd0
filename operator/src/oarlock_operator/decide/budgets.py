"""Restart budgets: how often a job may start again, counted per attempt, forgotten after a window or real progress."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from oarlock_api.history import Attempt, RestartCounts
from oarlock_api.recovery import Recovery
from oarlock_operator.decide import queue
from oarlock_operator.faults.classify import Budget

MOST_EVICTIONS = 30
"""Evictions within the window and without a newer checkpoint, after which nobody believes any more that one will
be made: each has held the GPUs of a whole gang for nothing."""
UNTOLD_SECONDS = 1800
"""A trainer of the job's own that tells of no steps counts as training, and as having progressed, once it ran this long."""


def ran_seconds(attempt: Attempt, *, now: datetime) -> float:
    """How long all pods of an attempt have run, by what its stages took; 0 before."""
    stages = attempt.stage_milliseconds
    if attempt.created_time is None or stages.start is None:
        return 0.0
    waited = queue.seconds_with_pods(attempt) + ((stages.schedule or 0) + stages.start) / 1000
    return max(0.0, (now - attempt.created_time).total_seconds() - waited)


def renewed(counts: RestartCounts, recovery: Recovery, *, now: datetime, progressed: bool) -> RestartCounts:
    """The counts with what is to be forgotten forgotten: all after the window or progress, but not how far that came."""
    over = counts.window_start_time is not None and now - counts.window_start_time > timedelta(
        seconds=recovery.window_seconds
    )
    if not over and not progressed:
        return counts
    return RestartCounts(progress_step=counts.progress_step)


def charged(counts: RestartCounts, budget: Budget, *, now: datetime) -> RestartCounts:
    """The counts after one more restart."""
    return counts.model_copy(
        update={
            budget.value: getattr(counts, budget.value) + 1,
            "window_start_time": counts.window_start_time or now,
        }
    )


def exhausted(counts: RestartCounts, budget: Budget, recovery: Recovery) -> str | None:
    """What to tell where the budget allows no further restart, else None; what others ask for costs nothing."""
    if budget is Budget.VOLUNTARY:
        return None
    limit, name = (
        (recovery.max_application_restarts, "maxApplicationRestarts")
        if budget is Budget.APPLICATION
        else (recovery.max_infrastructure_restarts, "maxInfrastructureRestarts")
    )
    if getattr(counts, budget.value) < limit:
        return None
    return f"recovery.{name} ({limit}) is used up within {recovery.window_seconds} s and without a newer checkpoint"


def backoff_seconds(restarts: int, recovery: Recovery, *, uid: str, attempt: int) -> float:
    """Seconds to wait before restart number `restarts` of a budget: 0 for the first, then doubling, with jitter.

    The first restart is free, because most crashes are not repeated and every second idles a whole gang. The jitter
    (50-100 %) is drawn from the job and the attempt, so that a pass that is repeated decides the same.
    """
    if restarts <= 1:
        return 0.0
    longest = min(recovery.backoff_seconds * 2.0 ** min(restarts - 2, 30), recovery.max_backoff_seconds)
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    return longest * (0.5 + 0.5 * digest[0] / 255)
