"""What holds a job up now, and what to do: the first answer of a list, from its acceptance to its last step.

Each function looks at one thing and returns a trouble, or None where all is well with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from oarlock.clock import when
from oarlock.explain import out_of_service, scheduler, words
from oarlock.explain.advice import advice, job_of
from oarlock.explain.causes import Cause, named
from oarlock.explain.memory import in_memory
from oarlock.explain.pods import Pod
from oarlock.explain.some_names import some
from oarlock.explain.standby import standing_by, surging
from oarlock.facts.model import Facts, Object
from oarlock.in_words import BUSY_WITH
from oarlock.parts import objects, part, texts
from oarlock.story import Attempt, Evidence, Now, Trouble
from oarlock_api.contract.wire import integer, text

_MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
"""Reasons of Events by which a kubelet says what it never writes into the pod."""
_STARTS = ("Pulling", "Pulled", "Created", "Started")
"""The same of what comes only after volumes and sandbox are there."""


MOST_DETAILS = 8
_NOTHING = "Nothing:"
"""As the advice begins that asks for nothing."""


class Situation:
    """A living job, and what its parts say. `pods` are those of the current attempt that its round needs."""

    def __init__(self, facts: Facts, pods: Sequence[Pod]) -> None:
        self.facts = facts
        self.job: Object = facts.job or {}
        self.status: Object = part(self.job, "status")
        self.attempt = integer(self.status.get("attempt")) or 0
        told = self.status.get("standby")
        # What one lacks that stands by while the others train is told by a condition.
        idle = told if isinstance(told, list) and self.status.get("phase") == "Running" else ()
        living = (pod for pod in pods if pod.attempt == self.attempt and pod.ending is None)
        self.pods = [pod for pod in living if pod.rank not in idle]
        self.nodes = sorted(
            {text(part(node, "metadata").get("name"), 253) for node in facts.nodes}
            | {pod.node for pod in pods}
            | {name for one in objects(self.status, "attempts") for name in texts(one, "nodeNames")} - {""}
        )

    def condition(self, kind: str) -> Object:
        """One of the job's conditions; empty where it is not told."""
        return next((one for one in objects(self.status, "conditions") if one.get("type") == kind), {})

    def node_in(self, said: str) -> str:
        """The one known node that a sentence names; empty where it names none or several."""
        found = {name for name in self.nodes if name and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", said)}
        return found.pop() if len(found) == 1 else ""

    def trouble(
        self, cause: Cause, said: str, source: str, *, pod: Pod | None = None, time: str = "", node: str = ""
    ) -> Trouble:
        """A trouble of the current attempt."""
        where = node or (pod.node if pod else "") or self.node_in(said)
        return Trouble(
            cause=cause,
            message=said[:1500] or cause.meaning,
            time=time,
            attempt=self.attempt or None,
            rank=pod.rank if pod else None,
            node=where,
            pod=pod.name if pod else "",
            evidence=(Evidence(source=source, text=said[:1024], time=time),) if said else (),
            next=self.advice(cause, (where,)),
        )

    def advice(self, cause: Cause, nodes: Sequence[str], *, taint: str = "") -> str:
        """What to do about a cause, with the names of this job and of these nodes."""
        return advice(cause, job=job_of(self.facts), nodes=nodes, attempt=self.attempt or None, taint=taint)

    def from_condition(self, kind: str, cause: Cause) -> Trouble:
        """A trouble in the words of a condition."""
        told = self.condition(kind)
        return self.trouble(
            cause, text(told.get("message"), 8192), f"condition {kind}", time=text(told.get("lastTransitionTime"), 40)
        )


def _unanswered(s: Situation) -> Trouble | None:
    if s.status.get("conditions") or s.status.get("phase"):
        return None
    return s.trouble(Cause.NO_OPERATOR, "", "status", time=text(s.job["metadata"].get("creationTimestamp"), 40))


def refused(s: Situation) -> Trouble | None:
    """Why the operator does not begin, or go on, with a job that is as wanted."""
    told = s.condition("Accepted")
    reason = named(text(told.get("reason"), 128))
    if told.get("status") == "False" and reason:
        return s.from_condition("Accepted", reason)
    word = named(text(s.status.get("reason"), 128))
    if word in (Cause.WAITING_FOR_PREDECESSOR, Cause.GANG_UNAVAILABLE, Cause.STATUS_UNREADABLE):
        return s.trouble(word, text(s.status.get("message"), 8192), "status.message")
    return None


def _queued(s: Situation) -> Trouble | None:
    gated = [pod for pod in s.pods if pod.gated]
    told = s.condition("Scheduled")
    in_queue = told.get("reason") == Cause.QUEUED or part(s.status, "recovery").get("stage") == "Queue"
    if not in_queue and not gated:
        return None
    said = text(told.get("message"), 2048) or text(s.status.get("message"), 2048)
    group = next((words_ for one in s.facts.groups if (words_ := _group_words(one))), "")
    of_a_queue = bool(group) or "in the queue" in said
    cause = Cause.QUEUED if of_a_queue else Cause.SCHEDULING_GATED
    message = said if not group or group in said else f"{said}: {group}" if said else group
    return s.trouble(cause, message, "the gang's queue" if of_a_queue else "pods")


def _group_words(group: Object) -> str:
    told = [one for one in objects(part(group, "status"), "conditions") if one.get("message")]
    waits = [one for one in told if one.get("status") == "False" or one.get("type") == "Unschedulable"]
    return text(waits[-1].get("message"), 512) if waits else ""


def _not_created(s: Situation) -> Trouble | None:
    told = s.condition("Scheduled")
    if told.get("reason") != Cause.CREATE_REFUSED:
        return None
    return s.from_condition("Scheduled", words.of_creation(text(told.get("message"), 2048)))


def _not_placed(s: Situation) -> Trouble | None:
    waiting = [pod for pod in s.pods if pod.unplaced and not pod.gated]
    if not waiting:
        return None
    said = next((pod.unplaced for pod in waiting if words.of_scheduling(pod.unplaced)), waiting[0].unplaced)
    found = scheduler.explain(said, s.facts.nodes)
    told = s.condition("Scheduled")
    # A claim keeps a pod from every node, avoided or not.
    avoided = [one for one in objects(s.status, "avoidedNodes") if one.get("strict", True)]
    if told.get("reason") == Cause.NOT_ENOUGH_HEALTHY_NODES and not words.of_scheduling(said) and avoided:
        return _too_few_healthy(s, waiting, avoided, found)
    count = f"{len(waiting)} of {len(s.pods)} pods have no node: " if len(s.pods) > 1 else ""
    pod = waiting[0]
    off = sorted({name for pod in waiting for name in pod.keeps_off})
    kept_off = f"; the pods keep off {some(off)}" if off else ""
    trouble = s.trouble(found.cause, f"{count}{found.message}{kept_off}", "", time=pod.since, node=found.node)
    evidence = Evidence(source=f"scheduler, of pod {pod.name}", text=said, time=pod.since)
    next_ = s.advice(found.cause, found.nodes, taint=found.taint)
    evidences = (evidence, *_claims(s, found.cause))
    return replace(trouble, node=found.node, details=found.details, evidence=evidences, next=next_)


def _too_few_healthy(
    s: Situation, waiting: Sequence[Pod], avoided: Sequence[Object], found: scheduler.Hindrance
) -> Trouble:
    """The job's own list of nodes, in the place of the operator's sentence about it."""
    names = [text(one.get("name"), 253) for one in avoided]
    trouble, pod = s.from_condition("Scheduled", Cause.NOT_ENOUGH_HEALTHY_NODES), waiting[0]
    count = "a pod has" if len(waiting) == 1 else f"{len(waiting)} pods have"
    kept_off = names[0] if len(names) == 1 else f"{len(names)} nodes"
    why = [
        f"{name} is avoided: {text(one.get('reason'), 300) or 'nobody says why'}"
        for name, one in zip(names, avoided, strict=True)
    ]
    return replace(
        trouble,
        message=f"{count} no node, and the job keeps off {kept_off}",
        node=names[0] if len(names) == 1 else "",
        evidence=(Evidence(source=f"scheduler, of pod {pod.name}", text=pod.unplaced, time=pod.since),),
        details=(*why[:MOST_DETAILS], ": ".join((found.message, "; ".join(found.details))).rstrip(": ")),
        next=s.advice(Cause.NOT_ENOUGH_HEALTHY_NODES, names),
    )


def _claims(s: Situation, cause: Cause) -> tuple[Evidence, ...]:
    """What the claims' own Events say of why they are not bound."""
    if cause is not Cause.CLAIM_UNBOUND:
        return ()
    told = {
        (text(event.get("reason"), 64), text(event.get("message"), 512)): when(event)
        for event in s.facts.events
        if part(event, "involvedObject").get("kind") == "PersistentVolumeClaim"
    }
    return tuple(
        Evidence(source=f"Event {reason}", text=said, time=time) for (reason, said), time in list(told.items())[-2:]
    )


def _not_mounted(s: Situation) -> Trouble | None:
    told = s.condition("StorageReady")
    reason, said = told.get("reason"), text(told.get("message"), 8192)
    if told.get("status") != "False" or reason != Cause.VOLUME_NOT_READY:
        return None
    return s.from_condition(
        "StorageReady", words.of_scheduling(said) or words.of_kubelet(said) or Cause.VOLUME_NOT_READY
    )


def _not_started(s: Situation) -> Trouble | None:
    hanging = [pod for pod in s.pods if pod.node and not pod.started]
    pod = next((pod for pod in hanging if pod.waits), None)
    if pod:
        said = _fuller(s, pod)
        cause = words.of_kubelet(said) or words.of_kubelet(pod.waits) or Cause.WAITING
        return s.trouble(cause, f"{pod.name} on {pod.node}: {said}", f"pod {pod.name}", pod=pod, time=pod.since)
    for pod in hanging:
        event, since = _newest(s, pod, _MOUNTS), _newest(s, pod, _STARTS)
        if event and not (since and when(since) >= when(event)):
            said = f"{event.get('reason')}: {text(event.get('message'), 1024)}"
            cause = words.of_kubelet(said) or Cause.VOLUME_NOT_READY
            return s.trouble(
                cause, f"{pod.name} on {pod.node}: {said}", f"Event {event.get('reason')}", pod=pod, time=when(event)
            )
    return None


def _fuller(s: Situation, pod: Pod) -> str:
    """A kubelet that backs off does not repeat what the registry said: its Event does."""
    if not pod.waits.startswith("ImagePullBackOff"):
        return pod.waits
    event = _newest(s, pod, ("Failed",), containing="pull")
    return f"{pod.waits.split(':')[0]}: {text(event.get('message'), 1024)}" if event else pod.waits


def _newest(s: Situation, pod: Pod, reasons: Sequence[str], *, containing: str = "") -> Object | None:
    found = [
        event
        for event in s.facts.events
        if part(event, "involvedObject").get("name") == pod.name
        and event.get("reason") in reasons
        and containing in text(event.get("message"), 1024)
    ]
    return found[-1] if found else None


def _degraded(s: Situation) -> Trouble | None:
    told = s.condition("Degraded")
    if told.get("status") != "True":
        return None
    reason = text(told.get("reason"), 128)
    return s.from_condition("Degraded", named(reason) or Cause.RECOVERING)


def _waits_for_a_try(s: Situation) -> Trouble | None:
    until = text(part(s.status, "recovery").get("notBeforeTime"), 40)
    if not until or until[:19] <= s.facts.time[:19] or s.pods:
        return None
    reason = named(text(s.status.get("reason"), 128))
    cause = reason if reason is Cause.PLACEMENT_TIMEOUT else Cause.BACKOFF
    said = text(s.status.get("message"), 2048)
    return s.trouble(cause, f"the next try is at {until}: {said}" if said else f"the next try is at {until}", "status")


_QUESTIONS: tuple[Callable[[Situation], Trouble | None], ...] = (
    _unanswered,
    refused,
    _queued,
    _not_created,
    _not_placed,
    _not_mounted,
    _not_started,
    _waits_for_a_try,
    _degraded,
)


def hindrance(s: Situation) -> Trouble | None:
    """What keeps a job that is not over from training, or spoils it."""
    return next((trouble for ask in _QUESTIONS if (trouble := ask(s))), None)


def failure(s: Situation, last: Trouble | None) -> Trouble | None:
    """Why a job has failed: what its message says more precisely than its reason, else its last fault."""
    reason, said = text(s.status.get("reason"), 128), text(s.status.get("message"), 8192)
    cause = named(reason) or words.of_kubelet(f"{reason}: {said}")
    if cause in (None, Cause.STARTUP_DEADLINE_EXCEEDED):
        cause = words.of_kubelet(said) or words.of_scheduling(said) or cause or Cause.FAILED
        return s.trouble(cause, said, "status.message", time=text(s.status.get("completionTime"), 40))
    fault = next((text(one, 1024) for one in texts(part(s.status, "lastFault"), "evidence")), "")
    ended_by_it = "The last fault:" in said or (fault and fault in said)
    if ended_by_it and last:
        return last
    return s.trouble(cause, said, "status.message", time=text(s.status.get("completionTime"), 40))


def now(s: Situation, trouble: Trouble | None, attempts: Sequence[Attempt]) -> Now:
    """How the job stands. `trouble`: what holds it up, or why it failed."""
    phase = text(s.status.get("phase"), 64) or "Pending"
    reason = named(text(s.status.get("reason"), 128))
    progress = part(s.status, "progress")
    step, total = integer(progress.get("step")), integer(progress.get("totalSteps"))
    told = named(trouble.cause) if trouble else None
    if phase == "Failed":
        cause = (None if reason is Cause.STARTUP_DEADLINE_EXCEEDED else reason) or told or Cause.FAILED
        message = text(s.status.get("message"), 2048)
        if trouble and trouble.message in message:
            message = message.partition(" The last fault: ")[0]
    elif trouble and told:
        cause, message = told, trouble.message
    else:
        cause = _of_phase(phase, reason)
        training = going(attempts[-1], step, total) if phase == "Running" and attempts else ""
        message = training or text(s.status.get("message"), 2048) or cause.meaning
    if phase not in ("Failed", "Succeeded"):
        if broken := sorted(out_of_service.not_cordoned(s.facts)):
            message += f"; {some(broken)}: broken, and not cordoned"
        if claimed := sorted(out_of_service.claimed(s.facts)):
            message += f"; {some(claimed)}: broken, as a program says"
    node = trouble.node if trouble else ""
    to_do = [s.advice(cause, (node,))]
    if trouble and trouble.cause == cause:
        to_do = [trouble.next]
    elif trouble:
        to_do.insert(0, trouble.next)
    if phase != "Failed" and (tasks := out_of_service.what_to_do(s.facts, s.pods, told=" ".join(to_do))):
        # Nobody is told to do nothing, and beside it what to do.
        to_do = [*(one for one in to_do if not one.startswith(_NOTHING)), *tasks]
    return Now(
        phase=phase,
        cause=cause,
        message=message or cause.meaning,
        details=(
            *_stage(s, phase, told=message),
            *([silence] if phase == "Running" and (silence := _silence(s)) else []),
            *surging(s.job, now=s.facts.time),
            *(said for said in (standing_by(s.job), in_memory(s.job, now=s.facts.time)) if said),
            *(trouble.details if trouble and message == trouble.message else ()),
        ),
        next=" ".join(dict.fromkeys(to_do)),
        node=node,
        rank=trouble.rank if trouble else None,
        step=step,
        total_steps=total,
        eta_seconds=integer(progress.get("etaSeconds")),
    )


def _stage(s: Situation, phase: str, *, told: str) -> tuple[str, ...]:
    """What a recovery is busy with, since when, and what the operator says of it, where that is not `told` already."""
    recovery = part(s.status, "recovery")
    words = BUSY_WITH.get(text(recovery.get("stage"), 64)) if phase == "Recovering" else None
    since = text(recovery.get("stageStartTime"), 40)[11:19]
    if not words:
        return ()
    said = text(s.status.get("message"), 1024) if recovery.get("stage") == "Replace" else ""
    busy = f"now {words}{f', since {since} UTC' if since else ''}"
    return (busy, *([said] if said and said != told else []), *map(_anew, objects(recovery, "replacing")))


def _silence(s: Situation) -> str:
    """That nothing goes on, before it counts as a hang."""
    progress = part(s.status, "progress")
    silent, allowed = integer(progress.get("silentSeconds")), integer(progress.get("hangAfterSeconds"))
    if silent is None or allowed is None:
        return ""
    return f"no progress for {silent} s: after {allowed} s the ranks count as hung"


def _anew(told: Object) -> str:
    """Which pod is made anew, and why."""
    node, reason = text(told.get("nodeName"), 253), text(told.get("reason"), 253)
    rank = integer(told.get("rank"))
    return f"pod {'?' if rank is None else rank}{f', lost on {node}' if node else ''}{f': {reason}' if reason else ''}"


def _of_phase(phase: str, reason: Cause | None) -> Cause:
    known = {
        "Queued": Cause.QUEUED,
        "Starting": Cause.STARTING,
        "Running": Cause.TRAINING,
        "Recovering": Cause.RECOVERING,
        "Suspended": Cause.SUSPENDED,
        "Succeeded": Cause.SUCCEEDED,
        "Pending": Cause.PENDING,
    }
    if reason in (Cause.STOPPING, Cause.SUSPENDING):
        return reason
    return known.get(phase) or reason or Cause.PENDING


def going(attempt: Attempt, step: int | None, total: int | None) -> str:
    """Of a gang that makes steps."""
    nodes = some(attempt.node_names)
    done = f"step {step:,}" + (f" of {total:,}" if total else "") if step is not None else "no step yet"
    return f"attempt {attempt.number} trains{f' on {nodes}' if nodes else ''}: {done}"
