"""Follow: the stages from created pods, by way of a queue, to the first step, and then the training's own figures."""

from __future__ import annotations

from datetime import datetime, timedelta

from oarlock_api.contract.figures import FIGURES
from oarlock_api.contract.status import PodStatus
from oarlock_api.contract.wire import finite
from oarlock_api.history import RecoveryStage
from oarlock_api.progress import LatestCheckpoint, Progress, StateInMemory
from oarlock_api.status import Resolved, ResolvedPlan
from oarlock_operator.decide import attempt, queue
from oarlock_operator.decide.budgets import UNTOLD_SECONDS, ran_seconds
from oarlock_operator.decide.curve import with_figures
from oarlock_operator.decide.draft import Draft, milliseconds_since
from oarlock_operator.decide.final_status import note_resumed
from oarlock_operator.decide.time_left import seconds_left
from oarlock_operator.decide.unplaced import unplaced
from oarlock_operator.manifests.config import below_the_mount
from oarlock_operator.model.observation import Observation, Pod
from oarlock_operator.model.reasons import Reason

LOOK_AGAIN_SECONDS = 1.0
QUEUE_SECONDS = 60.0
"""The longest time between looks at a gang in a queue: pods that are let in tell of it themselves."""
UNTOLD_COUNT_SECONDS = 600.0
"""How often the GPU time of a gang that tells nothing is written."""
SHARE = 0.1
"""A stage that has taken long is looked at less often, so that its measured length is wrong by a tenth at most."""
_STEADY = set(Reason) - {Reason.UNSCHEDULABLE, Reason.NOT_ENOUGH_HEALTHY_NODES}
"""Reasons that were decided here; any other is the scheduler's or a kubelet's, and ends with what it complained of."""


def follow(o: Observation, draft: Draft) -> bool:
    """Note which stage the start has reached, and how training goes."""
    number = draft.status.attempt
    pods = o.members(number)
    stage_before = draft.status.recovery.stage
    queue.wait(o, draft)
    if draft.status.recovery.stage == RecoveryStage.SCHEDULE.value and all(pod.scheduled for pod in pods):
        _leave(o, draft, "schedule", RecoveryStage.START)
        _note_nodes(draft, pods)
    if draft.status.recovery.stage == RecoveryStage.START.value and all(pod.started for pod in pods):
        _leave(o, draft, "start", RecoveryStage.FIRST_STEP)
    _note_obstacles(draft, pods)
    news = o.progress
    if news and draft.status.recovery.stage == RecoveryStage.FIRST_STEP.value and _stepped(news):
        _first_step(o, draft, news)
    elif o.spec.custom and draft.status.recovery.stage == RecoveryStage.FIRST_STEP.value:
        _run_untold(o, draft)
    if news:
        _note_plan(draft, news)
    noted = news and news.figures.step is not None and (draft.status.recovery.stage != stage_before or _due(o, draft))
    if news and noted:
        _note_progress(o, draft, news)
    if draft.status.recovery.stage is None and draft.attempt(number).gpu_seconds is not None:
        # With the figures, which are written anyway; for a trainer that tells none, now and then. Not where the record
        # does not hold the count, as where the API is of an older release: it is made once then, at the attempt's end.
        attempt.count(o, draft, number, least_seconds=0.0 if noted else UNTOLD_COUNT_SECONDS)
    draft.again(_until_next_look(o, draft))
    return False


def _until_next_look(o: Observation, draft: Draft) -> float:
    if draft.status.recovery.stage is None:
        # Whoever is silent is asked as often as ever: silence is what a hang is told by.
        return o.defaults.progress_seconds if o.silent else _figures_seconds(o)
    elapsed = milliseconds_since(draft.status.recovery.stage_start_time, o.now) / 1000
    longest = QUEUE_SECONDS if draft.status.recovery.stage == RecoveryStage.QUEUE else o.defaults.progress_seconds
    return min(max(LOOK_AGAIN_SECONDS, SHARE * elapsed), longest)


def _figures_seconds(o: Observation) -> float:
    """How often figures are read and written: the more jobs train, the more seldom."""
    return max(o.defaults.progress_seconds, o.defaults.figures_seconds)


def _note_obstacles(draft: Draft, pods: tuple[Pod, ...]) -> None:
    """While a pod waits for something, the first line that people read says for what. A queue has its own words.

    A pod that is made anew in a queue is let in within a moment: a gate is no word of nodes that lack.
    """
    if draft.status.recovery.stage == RecoveryStage.QUEUE:
        return
    stuck = [pod for pod in pods if pod.obstacle and not (pod.started or pod.stopped or pod.gated)]
    if stuck:
        kubelets = "; ".join(sorted({pod.obstacle for pod in stuck}))[:2048]
        reason, message = unplaced(draft, stuck) or (stuck[0].obstacle.partition(":")[0], kubelets)
        if draft.status.reason != reason:
            draft.tell(reason, f"{len(stuck)} of {len(pods)} pods wait: {message}", warning=True)
        draft.set(reason=reason, message=message)
    elif draft.status.recovery.stage and draft.status.reason not in _STEADY:
        why = next((one.reason for one in draft.status.recovery.replacing), None)
        draft.set(reason=why or draft.attempt(draft.status.attempt).reason or Reason.STARTING, message=None)


def _leave(o: Observation, draft: Draft, stage: str, following: RecoveryStage) -> None:
    elapsed = milliseconds_since(draft.status.recovery.stage_start_time, o.now)
    draft.measure(draft.status.attempt, stage, elapsed)
    draft.stage(following.value, o.now)


def _note_nodes(draft: Draft, pods: tuple[Pod, ...]) -> None:
    number = draft.status.attempt
    nodes = attempt.nodes_of(pods)
    before = draft.before(number).node_names
    draft.record(number, node_names=nodes, removed_node_names=tuple(name for name in before if name not in nodes))


def _stepped(news: PodStatus) -> bool:
    """Where a round ended meanwhile, its successor has to make a step first: before that nobody knows where it began."""
    return bool(news.first_step_at and news.started_at) and news.figures.step is not None


def _first_step(o: Observation, draft: Draft, news: PodStatus) -> None:
    """Training again: the time since the pod started is a difference within that pod, whenever it was asked."""
    number = draft.status.attempt
    try:
        elapsed = (_time(news.first_step_at) - _time(news.started_at)).total_seconds() * 1000
    except ValueError:
        elapsed = milliseconds_since(draft.status.recovery.stage_start_time, o.now)
    draft.measure(number, "first_step", elapsed)
    resumed, reached = news.resumed_from_step, draft.status.progress.step if draft.status.progress else None
    lost = max(0, reached - (resumed or 0)) if number > 1 and reached is not None else None
    draft.record(number, resumed_from_step=resumed or 0, lost_steps=lost)
    note_resumed(o, draft, resumed or 0)
    if lost and draft.status.progress and draft.status.progress.seconds_per_step:
        redone = lost * draft.status.progress.seconds_per_step * o.spec.nodes * o.spec.gpus_per_node
        draft.set(wasted_gpu_seconds=draft.status.wasted_gpu_seconds + round(redone))
    _leave_the_start(draft, message=None)
    if number == 1 and resumed:
        where = o.spec.output.directory or o.job.name
        message = f"the output directory {where} held a checkpoint of step {resumed}, and the job goes on from it"
        remedy = "; training.checkpoint.resume: Never begins anew" if o.spec.training else ""
        draft.tell(Reason.RESUMED_FROM_CHECKPOINT, f"{message}{remedy}")
    if number > 1:
        nodes = ", ".join(draft.attempt(number).node_names)
        again = f" ({lost} steps to redo)" if lost else ""
        draft.tell(Reason.TRAINING_AGAIN, f"attempt {number} on {nodes} from step {resumed or 0}{again}")


def _run_untold(o: Observation, draft: Draft) -> None:
    """A trainer of the job's own need not tell of steps: one that has run for long enough is training."""
    number = draft.status.attempt
    if ran_seconds(draft.attempt(number), now=o.now) < UNTOLD_SECONDS:
        return
    _leave_the_start(draft, message=f"it has run for {UNTOLD_SECONDS // 60} minutes and told of no step")
    if number > 1:
        nodes = ", ".join(draft.attempt(number).node_names)
        draft.tell(Reason.TRAINING_AGAIN, f"attempt {number} on {nodes}, as far as can be told")


def _leave_the_start(draft: Draft, *, message: str | None) -> None:
    recovery = draft.status.recovery.model_copy(
        update={"stage": None, "stage_start_time": None, "not_before_time": None}
    )
    draft.set(recovery=recovery, reason=Reason.TRAINING, message=message)


def _due(o: Observation, draft: Draft) -> bool:
    """Whether the last write is long enough ago: the API server must not hear of every step."""
    progress = draft.status.progress
    if progress is None or progress.update_time is None:
        return True
    # Half a second of slack, so that a pass that comes a little early does not halve the rate. A time that is still to come
    # was written by a clock that was ahead: nobody waits for it.
    return not timedelta() <= o.now - progress.update_time < timedelta(seconds=_figures_seconds(o) - 0.5)


def _note_plan(draft: Draft, news: PodStatus) -> None:
    """Take what the ranks' planner chose, once: it is kept with the image, and chosen anew with it."""
    resolved = draft.status.resolved or Resolved()
    if news.plan and resolved.plan is None:
        plan = ResolvedPlan(
            effective_batch=news.plan.effective_batch,
            zero_stage=news.plan.zero_stage,
            memory_bytes=news.plan.memory_bytes,
        )
        draft.set(resolved=resolved.model_copy(update={"plan": plan}))


def _note_progress(o: Observation, draft: Draft, news: PodStatus) -> None:
    figures = news.figures
    left = seconds_left(draft.status.progress, figures, began_at=news.resumed_from_step or 0)
    shown = {name: getattr(figures, name) for name in FIGURES if name in Progress.model_fields}
    if figures.seconds_per_step is not None:
        shown["seconds_per_step"] = round(figures.seconds_per_step, 3)  # for the column that shows it
    percent = finite(figures.mfu * 100) if figures.mfu is not None else None
    draft.set(progress=Progress(**shown, **_silence(news), mfu_percent=percent, eta_seconds=left, update_time=o.now))
    draft.set(curve=with_figures(draft.status.curve, figures))
    held = news.memory
    in_memory = held and StateInMemory(step=held.step, save_time=_time_or_none(held.saved_at), copied=held.copied)
    draft.set(memory=in_memory)
    if saved := news.checkpoint:
        draft.set(
            latest_checkpoint=LatestCheckpoint(
                step=saved.step,
                path=saved.path,
                relative_path=below_the_mount(o.spec, saved.path),
                save_time=_time_or_none(saved.saved_at),
            )
        )


def _silence(news: PodStatus) -> dict[str, int]:
    """For how long nothing has gone on, where it is long enough to be told before it counts as a hang."""
    silent, allowed = news.silent_seconds, news.hang_after_seconds
    if silent is None or not allowed or silent < allowed / 2:
        return {}
    return {"silent_seconds": round(silent), "hang_after_seconds": round(allowed)}


def _time(value: str) -> datetime:
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError(f"{value} names no time zone")
    return time


def _time_or_none(value: str) -> datetime | None:
    try:
        return _time(value)
    except ValueError:
        return None
