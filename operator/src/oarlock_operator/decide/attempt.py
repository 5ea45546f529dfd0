"""An attempt begins and ends in one place: its number, its record, and the GPUs that it held."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from oarlock_api.history import Attempt, RecoveryStage, RecoveryStatus, RestartCounts
from oarlock_api.status import Resolved
from oarlock_operator import schedulers
from oarlock_operator.decide import avoid, making, queue
from oarlock_operator.decide.budgets import ran_seconds
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.reasons import Reason


def begin(
    o: Observation, draft: Draft, *, reason: str | None, stage: RecoveryStage, not_before: datetime | None = None
) -> int:
    """Write down the next attempt: numbered above the last one and above any pod of a status that was lost."""
    queue.leave(o, draft)
    close(o, draft, reason)
    number = 1 + max([draft.status.attempt, *(pod.attempt for pod in o.pods)])
    draft.set(
        attempt=number,
        round=1,
        recovery=RecoveryStatus(stage=stage.value, stage_start_time=o.now, not_before_time=not_before),
    )
    if reason in (None, Reason.RESUMED):
        # What was left to Oarlock is decided here and kept through every recovery.
        gang = schedulers.chosen(o.spec.scheduling, o.systems)
        draft.set(
            resolved=Resolved(
                image=o.spec.pod.image or o.defaults.trainer_image,
                gang=gang.value,
                scheduler_name=o.spec.scheduling.scheduler_name or schedulers.SYSTEMS[gang].scheduler,
            )
        )
    if reason == Reason.RESUMED:
        # Whoever suspended it may have taken checkpoints away, to go back.
        draft.set(restarts=draft.status.restarts.model_copy(update={"progress_step": None}))
    avoid.prune(o, draft)
    size = o.spec.nodes + making.spares(o, draft)
    draft.record(number, start_time=o.now, reason=reason, node_count=size)
    draft.set(standby=tuple(range(o.spec.nodes, size)))
    return number


def nodes_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """The nodes of these pods, as an attempt's record has them."""
    return tuple(sorted({pod.node for pod in pods if pod.node}))[:32]


def leave(o: Observation, draft: Draft, counts: RestartCounts) -> None:
    """Write down that the current attempt is given up for another: where it ran, and what that costs.

    A node whose GPU has warned is left on this occasion, where another one is free.
    """
    status = draft.status
    nodes = tuple(pod.node for pod in o.members(status.attempt) if pod.node)
    draft.record(status.attempt, node_names=nodes[:32])
    for node, message in o.warned(status.attempt).items():
        why = f"{Reason.GPU_WARNING} in attempt {status.attempt}: {message}"[:1024]
        avoid.avoid(o, draft, node, why=why, strict=False, hardens=False)
    draft.set(restart_count=status.restart_count + 1, restarts=counts)


def close(o: Observation, draft: Draft, reason: str | None) -> None:
    """Write down why the current attempt is to end, once, before its pods are told to go.

    With it, what they have held so far: later, it may not be seen any more which of them had a node.
    """
    known = draft.attempt(draft.status.attempt)
    if known.start_time is None or known.end_time is not None or known.end_reason is not None:
        return
    draft.record(known.number, end_reason=reason)
    if known.gpu_seconds is not None:
        count(o, draft, known.number)


def end(o: Observation, draft: Draft, number: int) -> None:
    """Write the end of an attempt, once."""
    known = draft.attempt(number)
    if known.start_time is None or known.end_time is not None:
        return
    draft.record(number, end_time=o.now)
    count(o, draft, number)


def count(o: Observation, draft: Draft, number: int, *, least_seconds: float = 0.0) -> None:
    """Count the time for which an attempt that trains, or goes, has held its GPUs; not for less than that much more.

    What was counted stands in its record, written together with the sum, so that nothing is ever added twice.
    """
    known, each = draft.attempt(number), o.job.spec.gpus_per_node if o.job.spec else 0
    # Of those that train: what spares hold is of no use.
    gpus = min(known.node_count or 0, o.job.spec.nodes if o.job.spec else 0) * each
    if known.created_time is None or not gpus:
        return
    stages, counted = known.stage_milliseconds, known.gpu_seconds or 0
    places = _places(o, known, known.created_time)
    seconds = {rank: (o.now - since).total_seconds() for rank, since in places.items()}
    held = each * sum(seconds.values())
    more = round(held) - counted
    # Clocks step back.
    if more < max(0.0, least_seconds * gpus):
        return
    # Without a first step, nothing of it was of use; a trainer of the job's own need not have told of any.
    untold = stages.start is not None and o.job.spec is not None and o.job.spec.custom is not None
    if stages.first_step is None and not untold:
        draft.set(wasted_gpu_seconds=draft.status.wasted_gpu_seconds + more)
    elif not counted:
        works = max(0.0, ran_seconds(known, now=o.now) - (stages.first_step or 0) / 1000)
        draft.set(wasted_gpu_seconds=draft.status.wasted_gpu_seconds + max(0, round(held - works * gpus)))
    elif held:
        idle = each * sum(least for rank, least in seconds.items() if rank * each >= gpus)
        draft.set(wasted_gpu_seconds=draft.status.wasted_gpu_seconds + round(more * idle / held))
    draft.record(number, gpu_seconds=counted + more)
    draft.set(gpu_seconds=draft.status.gpu_seconds + more)


def _places(o: Observation, known: Attempt, created: datetime) -> dict[int, datetime]:
    """Since when each pod of an attempt has had a node, by rank.

    One that is not seen any more had it, if all ever had one. Spares never are all that count.
    """
    whole, since = (
        known.stage_milliseconds.schedule is not None,
        created + timedelta(seconds=queue.seconds_with_pods(known)),
    )
    seen = {pod.rank: pod for pod in o.of_attempt(known.number) if pod.scheduled}
    # A rank whose pod was made anew held GPUs before that one.
    told = {rank: pod.placed_at for rank, pod in seen.items() if pod.incarnation == 1}
    nodes = o.job.spec.nodes if o.job.spec else 0
    return {
        rank: min(max(told.get(rank) or since, created), o.now)
        for rank in range(known.node_count or 0)
        if (whole and rank < nodes) or rank in seen
    }
