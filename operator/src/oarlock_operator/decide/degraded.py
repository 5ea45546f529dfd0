"""What is not as it should be while a job goes on: the condition Degraded.

What the ranks find is told by rank 0's /status, and by an Event when the condition begins to say it. While a gang that
trains does not answer, it stays as it was told. Losses that are finite only now and then do not make it flip: `progress`
tells of one that is not for five minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oarlock_api.contract.environment import SIMULATE_GPUS
from oarlock_api.contract.status import Degradation, with_names
from oarlock_api.history import RecoveryStage
from oarlock_api.recovery import SlowRank
from oarlock_api.status import Condition, ConditionType
from oarlock_operator.decide import cordon, queue, slow_rank, standby
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.requests import GRACE_TOO_SHORT, grace_too_short
from oarlock_operator.decide.teardown import not_stopping
from oarlock_operator.model.observation import Observation, Pod, by_rank
from oarlock_operator.model.reasons import UNMONITORED, Reason

SILENT_SECONDS = 60.0
_REFUSED = (
    "made with another key than this operator's, or by a clock that is more than 5 minutes off, these pods train and tell it "
    "nothing; the next attempt has this operator's key. Was the key replaced, keep the old one as a further line until they "
    "are gone: "
)
_TOLD = {
    Degradation.NON_FINITE_LOSS: Reason.NON_FINITE_LOSS,
    Degradation.CHECKPOINT_STORAGE_FULL: Reason.CHECKPOINT_STORAGE_FULL,
    Degradation.CHECKPOINT_NOT_COPIED: Reason.CHECKPOINT_NOT_COPIED,
    Degradation.MEMORY_OFF: Reason.MEMORY_OFF,
    Degradation.MEMORY_NOT_COPIED: Reason.MEMORY_NOT_COPIED,
    Degradation.SLOW_RANK: Reason.SLOW_RANK,
    Degradation.SLOW_NETWORK: Reason.SLOW_NETWORK,
}
_LASTING = {Reason.MEMORY_OFF, Reason.MEMORY_NOT_COPIED, Reason.SLOW_RANK, Reason.SLOW_NETWORK}
_GOES_ON = "it goes on, and a new job would be refused: "
_BEGINNINGS = {
    Reason.GRACE_TOO_SHORT: GRACE_TOO_SHORT,
    Reason.INVALID_SPEC: _GOES_ON,
    Reason.GPU_UNMONITORED: UNMONITORED,
}
"""How the words of what may stand beside what rank 0 tells begin: by these it is found in the condition again."""
_MOST_CHARS, _PART_CHARS = 2048, 400


def degraded(o: Observation, draft: Draft, pods: Sequence[Pod]) -> tuple[Reason | None, str]:
    """The first thing that is not as it should be, of the current attempt's `pods` and their job; None where all is.

    A running job goes on as it was accepted, whatever it was edited to since; that is told here.
    """
    stuck = not_stopping(o)
    if stuck:
        return _stuck(draft, stuck)
    if not draft.status.attempt or draft.status.completion_time is not None:
        return None, ""
    living = [pod for pod in pods if not pod.stopped]
    mute = sorted(pod.name for pod in pods if o.silent.get(pod.uid, 0.0) >= SILENT_SECONDS)
    doubtful = sorted({pod.node for pod in living if (n := o.nodes.get(pod.node)) and not n.ready})
    warned = _of_nodes(o.warned(draft.status.attempt))
    marked = _of_nodes({name: why.message for name, why in o.maintenance(draft.status.attempt).items()})
    told = _told(o, draft, living)
    unmonitored = _unmonitored(o, draft, living)
    found = (
        (Reason.INVALID_SPEC, "" if o.job.spec else o.job.problem or "it cannot be read"),
        (Reason.GANG_IGNORED, queue.ignored(o, draft)),
        (Reason.STATUS_SILENT, _all(f"/status has not answered for more than {SILENT_SECONDS:.0f} s: ", mute[:8])),
        (Reason.KEY_REFUSED, _all(_REFUSED, [pod.name for pod in pods if pod.uid in o.refusing][:8])),
        *(one for one in told if one[0] not in _LASTING),
        (Reason.CORDON_FAILED, cordon.undone(o, draft)),
        (Reason.NODE_NOT_READY, _all("not ready, though the pods answer: ", doubtful)),
        (Reason.GPU_WARNING, warned),
        (Reason.NODE_MARKED, f"{marked}. The gang moves once as many free nodes would take it" if marked else ""),
    )
    # These hold for long, or the whole attempt: they would hide all that comes up meanwhile, and each other.
    lasting = (
        *(one for one in told if one[0] in _LASTING),
        (Reason.GRACE_TOO_SHORT, grace_too_short(draft)),
        (Reason.FEWER_NODES, standby.fewer(o, draft)),
        (Reason.SPARES_LACKING, standby.lacking(o, draft)),
        (Reason.INVALID_SPEC, f"{_GOES_ON}{o.job.problem}" if o.job.problem else ""),
        (Reason.GPU_UNMONITORED, unmonitored),
    )
    shown = [one for one in found if one[1]][:1] or [one for one in lasting if one[1]]
    most = _MOST_CHARS if len(shown) == 1 else _PART_CHARS
    shown = [(reason, message[:most]) for reason, message in shown]
    before = _before(draft)
    for reason, message in shown:
        with_event = reason in {*_TOLD.values(), Reason.GRACE_TOO_SHORT, Reason.GPU_UNMONITORED}
        if with_event and not _is_said(before, reason, message):
            draft.tell(reason, message, warning=True)
    return (shown[0][0] if shown else None), "; ".join(message for _, message in shown)


def _is_said(before: Condition | None, reason: Reason, message: str) -> bool:
    """Whether the condition says so already, first or beside another."""
    return before is not None and (before.reason == reason or _BEGINNINGS.get(reason, message) in before.message)


def _unmonitored(o: Observation, draft: Draft, pods: Sequence[Pod]) -> str:
    """Whose GPUs nobody watches, and why; nothing of GPUs that the job only simulates."""
    if o.unmonitored is None:
        before, trains = _before(draft), draft.status.recovery.stage is None
        return "".join(before.message.partition(UNMONITORED)[1:]) if trains and before else ""
    if o.job.spec and any((one.name, one.value) == (SIMULATE_GPUS, "1") for one in o.job.spec.pod.env):
        return ""
    said = [f"{pod.name} ({message})" for pod in pods if (message := o.unmonitored.get(pod.uid))]
    return _all(UNMONITORED, [*said[:8], *([f"and {len(said) - 8} more"] if len(said) > 8 else [])])


def _stuck(draft: Draft, stuck: Sequence[Pod]) -> tuple[Reason, str]:
    """Told once where a job waits for them; a recovery goes on without them, and says so itself."""
    names = ", ".join(f"{pod.name} on {pod.node}" for pod in stuck[:8])
    message = f"still there though their grace and teardownSeconds are over: {names}. Look at these nodes"
    before, draining = _before(draft), draft.status.recovery.stage == RecoveryStage.DRAIN
    known = before is not None and before.reason == Reason.POD_NOT_STOPPING
    if not known and not draining and all(event.reason != Reason.POD_NOT_STOPPING for event in draft.events):
        draft.tell(Reason.POD_NOT_STOPPING, message, warning=True)
    return Reason.POD_NOT_STOPPING, message[:2048]


def _told(o: Observation, draft: Draft, pods: Sequence[Pod]) -> list[tuple[Reason, str]]:
    """What rank 0 tells, the worst first. It knows pods by their ranks alone: here they have names and nodes."""
    if o.progress is None or o.progress.attempt != draft.status.attempt:
        before = _before(draft)
        trains = draft.status.recovery.stage is None
        known = before.message if before and trains else ""
        for beginning in _BEGINNINGS.values():
            known = known.partition(f"; {beginning}")[0]
        return [(reason, known) for reason in _TOLD.values() if before and before.reason == reason]
    names = by_rank(pods)
    told = {reason: with_names(o.progress.degraded.get(kind, ""), names) for kind, reason in _TOLD.items()}
    if told[Reason.SLOW_RANK] and o.spec.recovery.slow_rank is SlowRank.MIGRATE:
        then = slow_rank.stays(o, draft) or "the gang moves once as many free nodes would take it"
        told[Reason.SLOW_RANK] += f". {then[:1].upper()}{then[1:]}"
    return list(told.items())


def _before(draft: Draft) -> Condition | None:
    return next((c for c in draft.status.conditions if c.type == ConditionType.DEGRADED), None)


def _all(beginning: str, names: Sequence[str]) -> str:
    return beginning + ", ".join(names) if names else ""


def _of_nodes(said: Mapping[str, str]) -> str:
    return "; ".join(f"node {name}: {message}" for name, message in sorted(said.items()))[:1024]
