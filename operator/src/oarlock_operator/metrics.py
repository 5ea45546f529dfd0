"""Prometheus metrics of the operator. Label sets are bounded; a job's name stands only on gauges of jobs that live."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.history import Attempt, LastFault, RecoveryStage, Rung
from oarlock_api.status import Phase, TrainingJobStatus
from oarlock_operator.model.reasons import STARTS, VOLUNTARY, Reason

# When each counter began, as a series of its own: nothing asks for it, and it would double their number.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

API_CALLS = Counter(
    "oarlock_api_calls", "Requests to the API server; code 0 is no answer", ["verb", "code"], registry=REGISTRY
)
RECONCILES = Counter("oarlock_reconciles", "Passes over one job", ["result"], registry=REGISTRY)
RECONCILE_SECONDS = Histogram("oarlock_reconcile_seconds", "Time of one pass over one job", registry=REGISTRY)
QUEUE_DEPTH = Gauge("oarlock_queue_depth", "Jobs waiting for a worker", registry=REGISTRY)
QUEUE_WAIT = Histogram(
    "oarlock_queue_wait_seconds",
    "From an event to the pass that looks at it",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
    registry=REGISTRY,
)
RESTARTS = Counter("oarlock_restarts", "Gangs that were started again", ["budget", "reason"], registry=REGISTRY)
FAULTS = Counter("oarlock_faults", "Root causes, by class", ["fault_class"], registry=REGISTRY)
GPU_FAULTS = Counter(
    "oarlock_gpu_faults",
    "Root causes that were a GPU's; xid is none, a number, or Other",
    ["xid", "verdict"],
    registry=REGISTRY,
)
REPORTS_REJECTED = Counter(
    "oarlock_reports_rejected",
    "Termination messages that were broken, or spoke of another pod or attempt",
    registry=REGISTRY,
)
UNREADABLE = Counter(
    "oarlock_objects_unreadable", "Objects of the API that could not be read, each counted once", registry=REGISTRY
)
PARTS_RESTARTED = Counter(
    "oarlock_parts_restarted", "Parts of the process that ended or failed, and began anew", ["part"], registry=REGISTRY
)
CORDONS_REFUSED = Counter("oarlock_cordons_refused", "Cordons that a brake held back", registry=REGISTRY)
CORDONS_FAILED = Counter(
    "oarlock_cordons_failed", "Attempts to cordon a node that the API server did not take", registry=REGISTRY
)
BREAKER = Gauge(
    "oarlock_cordon_breaker_latched", "1 since this process has seen the cordon breaker latched", registry=REGISTRY
)
STEPS_LOST = Counter("oarlock_steps_lost", "Steps that were done again after a restart", registry=REGISTRY)
FORCE_DELETED = Counter("oarlock_pods_force_deleted", "Pods deleted by force on lost nodes", registry=REGISTRY)
CORDONS = Counter("oarlock_nodes_cordoned", "Nodes that Oarlock cordoned", registry=REGISTRY)
FINISHED = Counter("oarlock_jobs_finished", "Jobs that ended", ["phase", "reason"], registry=REGISTRY)
RECOVERY_SECONDS = Histogram(
    "oarlock_recovery_seconds",
    "From a fault to training again, by stage",
    ["stage"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 60, 120, 300, 900),
    registry=REGISTRY,
)
RUNG_SECONDS = Histogram(
    "oarlock_recovery_rung_seconds",
    "From a fault to training again, by what was made anew: RestartRanks, TakeSpare, Shrink, Grow, ReplacePod or Attempt",
    ["rung"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 60, 120, 300, 900),
    registry=REGISTRY,
)
ROUNDS = Counter(
    "oarlock_rounds",
    "Rounds that ended, by a fault or to take more nodes, and were followed in the same attempt",
    ["rung", "reason"],
    registry=REGISTRY,
)
_JOB = ["namespace", "training_job"]
JOB_PHASE = Gauge("oarlock_job_phase", "1 for the phase that a living job is in", [*_JOB, "phase"], registry=REGISTRY)
JOB_PROGRESS = Gauge(
    "oarlock_job_last_progress_timestamp_seconds", "When a living job's figures last came", _JOB, registry=REGISTRY
)
JOB_GOODPUT = Gauge(
    "oarlock_job_goodput_ratio",
    "Share of a living job's GPU time so far that made progress",
    _JOB,
    registry=REGISTRY,
)
LEADER = Gauge("oarlock_leader", "1 while this process holds the Lease", registry=REGISTRY)
LAST_RESYNC = Gauge("oarlock_last_resync_timestamp_seconds", "When all jobs were last listed", registry=REGISTRY)
_BUDGETS = ("application", "infrastructure", "voluntary")
MOST_XIDS = 255
"""NVIDIA's catalog ends below it: a label set stays bounded whatever a report says."""
OTHER = "Other"
"""Label for reasons that are not ours: kubelets may have any."""
_KNOWN = set(Reason)
_BLAMED = (
    Reason.APPLICATION_ERROR,
    Reason.PROCESS_KILLED,
    Reason.KILLED_AFTER_GRACE,
    Reason.OOM_KILLED,
    Reason.GPU_OUT_OF_MEMORY,
    Reason.NON_FINITE_LOSS,
    Reason.LIMIT_EXCEEDED,
    Reason.HANG,
    Reason.AGENT_SILENT,
    Reason.GPU_FAULT,
    Reason.PEER_LOST,
    Reason.POD_DISAPPEARED,
    Reason.POD_FAILED,
    Reason.REFUSED_BY_NODE,
    Reason.NODE_LOST,
    Reason.NODE_RESTARTED,
    Reason.END_UNKNOWN,
    Reason.STORAGE_FAULT,
    Reason.PREFLIGHT_FAILED,
    OTHER,
)
"""Why gangs start again at the cost of a budget."""


def _begin_at_zero() -> None:
    """Show the counters that alerts watch before anything is counted.

    One that begins at 1 has not risen for Prometheus: an alert would not see the first of a kind, for each new operator
    anew. All XIDs, because an operator counts what it reads in a report; those that restart processes alone have an alert.
    """
    for result in ("ok", "conflict", "error", "bug"):
        RECONCILES.labels(result=result)
    for fault_class in FailureClass:
        FAULTS.labels(fault_class=fault_class)
    for reason in _BLAMED:
        for budget in ("application", "infrastructure"):
            RESTARTS.labels(budget=budget, reason=reason)
        for rung in (Rung.RESTART_RANKS, Rung.TAKE_SPARE, Rung.SHRINK, Rung.REPLACE_POD):
            ROUNDS.labels(rung=rung, reason=reason)
    ROUNDS.labels(rung=Rung.GROW, reason=Reason.MORE_NODES)
    for xid in ("none", *range(1, MOST_XIDS + 1), OTHER):
        GPU_FAULTS.labels(xid=xid, verdict=GpuVerdict.RESTART_PROCESS)


_begin_at_zero()


def api_call(verb: str, code: int) -> None:
    """Count one request; code 0 is no answer."""
    API_CALLS.labels(verb=verb, code=str(code)).inc()


def written(namespace: str, job: str, before: TrainingJobStatus, after: TrainingJobStatus) -> None:
    """Count what a status write made true: after it, so that a pass that failed counts nothing."""
    _count_fault(before, after)
    if after.attempt > before.attempt > 0:
        _count_restart(before, after)
    if (
        before.recovery.stage not in (None, RecoveryStage.REPLACE)
        and after.recovery.stage is None
        and after.attempt > 1
    ):
        _observe_recovery(after)
    _count_rounds(before, after)
    if after.completion_time is not None and before.completion_time is None:
        FINISHED.labels(phase=after.phase or "", reason=_bounded(after.reason)).inc()
    seen(namespace, job, after)


def seen(namespace: str, job: str, status: TrainingJobStatus) -> None:
    """Show a living job as its status has it; each pass does, because a new process has shown nothing of it yet."""
    if status.completion_time is not None:
        forget(namespace, job)
        return
    for phase in Phase:
        JOB_PHASE.labels(namespace, job, phase.value).set(phase == status.phase)
    if status.progress and isinstance(status.progress.update_time, datetime):
        JOB_PROGRESS.labels(namespace, job).set(status.progress.update_time.timestamp())
    if status.gpu_seconds:
        JOB_GOODPUT.labels(namespace, job).set(1 - min(1.0, status.wasted_gpu_seconds / status.gpu_seconds))


def forget(namespace: str, job: str) -> None:
    """Drop the series of a job that is over or gone."""
    for phase in Phase:
        JOB_PHASE.remove(namespace, job, phase.value)
    JOB_PROGRESS.remove(namespace, job)
    JOB_GOODPUT.remove(namespace, job)


def forget_all() -> None:
    """Drop the series of all jobs: this process looks at none any more."""
    for gauge in (JOB_PHASE, JOB_PROGRESS, JOB_GOODPUT):
        gauge.clear()


def _current(status: TrainingJobStatus) -> Attempt | None:
    return next((attempt for attempt in status.attempts if attempt.number == status.attempt), None)


def _count_fault(before: TrainingJobStatus, after: TrainingJobStatus) -> None:
    """Root causes, each once. Victims count only where no cause has spoken until their pods were gone."""
    fault = after.last_fault
    if fault is None:
        return
    if fault.fault_class == FailureClass.PEER_LOST:
        record = _current(after)
        drained = before.recovery.stage == RecoveryStage.DRAIN and after.recovery.stage == RecoveryStage.SCHEDULE
        if not (drained and record and record.reason in (Reason.PEER_LOST, Reason.POD_DISAPPEARED)):
            return
    elif _is_same(fault, before.last_fault) or fault.fault_class == FailureClass.REQUESTED:
        return
    FAULTS.labels(fault_class=fault.fault_class).inc()
    if fault.fault_class == FailureClass.GPU:
        number = "none" if fault.xid is None else str(fault.xid) if 0 < fault.xid <= MOST_XIDS else OTHER
        GPU_FAULTS.labels(xid=number, verdict=fault.verdict or OTHER).inc()


def _is_same(fault: LastFault, before: LastFault | None) -> bool:
    """Whether it is the one that was there, though its victims are counted by now."""
    keys = ("time", "fault_class", "node_name", "rank")
    return before is not None and all(getattr(fault, key) == getattr(before, key) for key in keys)


def _count_restart(before: TrainingJobStatus, after: TrainingJobStatus) -> None:
    record = _current(after)
    reason = _bounded(record.reason if record else None)
    if after.restart_count <= before.restart_count:
        return
    now, then = after.restarts, before.restarts
    used = [budget for budget in _BUDGETS if getattr(now, budget)]
    # Where what was before was forgotten meanwhile, the only count that is left is the one that rose.
    risen = [budget for budget in used if getattr(now, budget) > getattr(then, budget)] or used[:1]
    for budget in risen:
        RESTARTS.labels(budget=budget, reason=reason).inc()


def _observe_recovery(after: TrainingJobStatus) -> None:
    record = _current(after)
    if record is None:
        return
    STEPS_LOST.inc(record.lost_steps or 0)
    if record.reason in STARTS | VOLUNTARY:
        # Nothing broke: the time in which a gang saves and leaves is no recovery's.
        return
    took = {stage: known for stage, known in record.stage_milliseconds.model_dump().items() if known is not None}
    for stage, milliseconds in took.items():
        RECOVERY_SECONDS.labels(stage=stage).observe(milliseconds / 1000)
    RUNG_SECONDS.labels(rung=Rung.ATTEMPT).observe(sum(took.values()) / 1000)


def _count_rounds(before: TrainingJobStatus, after: TrainingJobStatus) -> None:
    """Each round as it is booked, and what becomes known of it later, once."""
    if after.rounds == before.rounds:
        return
    known = {(one.attempt, one.round): one for one in before.rounds}
    for one in after.rounds:
        was = known.get((one.attempt, one.round))
        if was is None:
            ROUNDS.labels(rung=_rung(one.rung), reason=_bounded(one.reason)).inc()
        if one.lost_steps and (was is None or was.lost_steps is None):
            STEPS_LOST.inc(one.lost_steps)
        if one.down_seconds is not None and (was is None or was.down_seconds is None):
            RUNG_SECONDS.labels(rung=_rung(one.rung)).observe(one.down_seconds)


def _rung(rung: str) -> str:
    return rung if rung in frozenset(Rung) else OTHER


def _bounded(reason: str | None) -> str:
    return reason if reason in _KNOWN else OTHER
