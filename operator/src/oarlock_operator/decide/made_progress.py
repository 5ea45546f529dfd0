"""Made progress: whether training came further than ever before, when a round, a pod or an attempt ends. One rule for all.

What counts is a step that training can go on from, or went on from: that of a valid checkpoint, of a round's beginning, of a
state in memory that outlives a lost pod. It is progress only beyond the furthest one that has counted, in whichever attempt.
That one stands in the status with the counts that it renewed. So each step counts once, however it was kept: a fault
that comes back at the same step ends the job, also where the state in memory is lost with each attempt and made anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.contract.status import MemoryStatus, PodStatus
from oarlock_api.history import Round
from oarlock_api.progress import StateInMemory
from oarlock_operator.decide.budgets import UNTOLD_SECONDS, ran_seconds
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Observation


@dataclass(frozen=True, slots=True)
class Furthest:
    """The furthest step that has counted as progress by now; None where not even the job's first is known."""

    step: int | None
    new: bool = False
    """It counts now, or a trainer of the job's own that tells no steps ran for so long that it has made some."""


def furthest(counted: int | None, kept: Iterable[int | None], *, began: int | None) -> Furthest:
    """What has counted, with these steps. Before any has, progress is what lies beyond that with which training `began`."""
    least = began if counted is None else counted
    most = max((step for step in kept if step is not None), default=-1)
    return Furthest(least) if least is None or most <= least else Furthest(most, new=True)


def of_round(o: Observation, draft: Draft, end: RoundEnd, news: PodStatus, ended: datetime) -> Furthest:
    """With a round that ended: the next one's beginning tells what was kept; where there is none yet, the checkpoint."""
    kept = end.resumed_step
    if kept is None and news.checkpoint is not None:
        kept = news.checkpoint.step
    return _with(o, draft, [kept], until=ended, number=end.number)


def of_lost_pod(o: Observation, draft: Draft) -> Furthest:
    """With pods that were lost: checkpoints tell, and the state in memory, where the next node has each one's part."""
    if draft.status.recovery.stage is not None:
        # The gang that still stands by has not started since: no new pod of its own can have made progress, or failed to.
        return Furthest(draft.status.restarts.progress_step)
    news = o.progress if o.progress and o.progress.attempt == draft.status.attempt else None
    held: list[MemoryStatus | StateInMemory | None] = [draft.status.memory, news.memory if news else None]
    return _with(o, draft, [*_saved(o, draft), *(one.step for one in held if one and one.copied)], until=o.now)


def of_attempt(o: Observation, draft: Draft, *, held: bool) -> Furthest:
    """With an attempt that ends: checkpoints alone tell.

    Where a mere warning ends it (`held`), what it began with is no progress: the attempt before it may have saved that as it
    left for the same warning. Else a GPU that always warns would renew the budget with each attempt, and never be waited for.
    """
    return _with(o, draft, _saved(o, draft), until=o.now, only_its_own=held)


def _with(
    o: Observation,
    draft: Draft,
    kept: Iterable[int | None],
    *,
    until: datetime,
    number: int | None = None,
    only_its_own: bool = False,
) -> Furthest:
    """With these steps, and with that which the current round, or round `number`, began with, unless `only_its_own`."""
    began, counted = _began_with(o, draft, number=number), draft.status.restarts.progress_step
    if only_its_own:
        counted = furthest(counted, [began], began=began).step
    told = furthest(counted, [began, *kept], began=began)
    if o.spec.custom and _ran_since_its_start(draft, until=until, number=number) >= UNTOLD_SECONDS:
        return Furthest(told.step, new=True)
    return told


def _saved(o: Observation, draft: Draft) -> list[int]:
    """Steps of checkpoints that are known of: the last words of pods may tell of a newer one."""
    pods = o.of_attempt(draft.status.attempt)
    saved = [pod.report.checkpoint_step for pod in pods if pod.report and pod.report.checkpoint_step is not None]
    if draft.status.latest_checkpoint is not None:
        saved.append(draft.status.latest_checkpoint.step)
    return saved


def last_round(draft: Draft, *, before: int | None = None) -> Round | None:
    """The newest round of the current attempt that is booked, or the one `before` a round; None for none."""
    own = [one for one in draft.status.rounds if one.attempt == draft.status.attempt]
    return max((one for one in own if before is None or one.round < before), key=lambda one: one.round, default=None)


def _began_with(o: Observation, draft: Draft, *, number: int | None = None) -> int | None:
    """The step that the current round, or round `number` of the attempt, began with, as far as it is known."""
    before = last_round(draft, before=number)
    step = before.resumed_from_step if before else draft.attempt(draft.status.attempt).resumed_from_step
    if step is None and o.job.status.latest_checkpoint is not None:
        # It was never heard of, as where pods refuse the operator's key: what was known before it is what it began with.
        step = o.job.status.latest_checkpoint.step
    return step


def _ran_since_its_start(draft: Draft, *, until: datetime, number: int | None = None) -> float:
    """Seconds for which the current round, or round `number`, has run; its ranks' start after another one's end counts."""
    before = last_round(draft, before=number)
    if before is None or before.ended_time is None:
        return ran_seconds(draft.attempt(draft.status.attempt), now=until)
    return max(0.0, (until - before.ended_time).total_seconds())
