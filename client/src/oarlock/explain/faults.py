"""Troubles from what pods left behind: fault reports, endings of containers, and what the operator wrote about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oarlock.explain import words
from oarlock.explain.advice import advice
from oarlock.explain.causes import OF_CLASS, OF_CODE, Cause, Part, named
from oarlock.explain.pods import Pod
from oarlock.facts.model import Object
from oarlock.parts import part, texts
from oarlock.story import Evidence, Trouble
from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.kubelet_words import NEVER_RAN, nobody_knows
from oarlock_api.contract.report import Report
from oarlock_api.contract.wire import integer, text

MAX_EVIDENCE = 8
_KILLED = 128 + 9
VICTIMS = (Cause.PEER_LOST, Cause.FINDING_CAUSE, Cause.LEFT_ON_REQUEST, Cause.KILLED_AFTER_GRACE)
"""What pods tell that ended for another one's sake."""
_PREEMPTED = ("PreemptionByScheduler", "Preempted", "WorkloadEvictedDueToPreempted")
_NODE_LOST = "DeletionByPodGC"


def of_report(report: Report, *, job: str, node: str = "", pod: str = "") -> Trouble:
    """The trouble that a fault report tells. Reports of pods that ended well tell none: do not ask."""
    cause = words.refined(_of_code(report.code), report.summary)
    said = Evidence(source=f"report of pod {report.rank}", text=report.summary[:1024], time=report.detected_at)
    readings = tuple(
        Evidence(source=f"probe {one.probe}", text=one.reading, time=one.at) for one in report.evidence[:MAX_EVIDENCE]
    )
    return Trouble(
        cause=cause,
        message=report.summary or f"ended with code {report.code}",
        time=report.detected_at,
        attempt=report.attempt,
        rank=report.rank,
        node=node,
        pod=pod,
        gpu=report.gpu.index if report.gpu else None,
        gpu_uuid=report.gpu.uuid if report.gpu else "",
        xid=report.xid,
        fault_class=failure_class(report.code).value,
        exit_code=report.code,
        first_rank=report.first_error_rank,
        evidence=(said, *readings),
        next=advice(cause, job=job, nodes=(node,), attempt=report.attempt, proven=report.proven),
    )


def of_pod(pod: Pod, *, job: str) -> Trouble | None:
    """The trouble of a pod that ended badly or is taken away; None for one that works or ended well."""
    ending = pod.ending
    if pod.evicted and not pod.disrupted:
        return _of_pod(pod, Cause.LIMIT_EXCEEDED, f"its kubelet evicted pod {pod.name}: {pod.evicted}", job)
    if pod.disrupted and (pod.deleting or ending):
        return _of_pod(pod, _of_disruption(pod.disrupted), _disruption(pod), job)
    if ending is None or ending.code == ExitCode.DONE:
        return None
    if ending.report and ending.report.code:
        told = of_report(ending.report, job=job, node=pod.node, pod=pod.name)
        # The agent sees a killed process; only the kubelet may have seen what for.
        killed = ending.reason == "OOMKilled" and told.cause == Cause.KILLED
        return replace(told, cause=Cause.OOM_KILLED, next=advice(Cause.OOM_KILLED, job=job)) if killed else told
    if ending.code is None:
        said = f"{ending.reason}: {ending.message}"
        cause = words.of_kubelet(said) or (named(ending.reason) if ending.reason else None) or Cause.POD_FAILED
        return _of_pod(pod, cause, f"pod {pod.name} failed: {said}", job)
    if ending.reason == "OOMKilled":
        cause = Cause.OOM_KILLED
    elif nobody_knows(ending.reason, ending.code):
        cause = Cause.END_UNKNOWN
    elif ending.reason in NEVER_RAN:
        cause = words.of_kubelet(f"{ending.reason}: {ending.message}") or Cause.CONTAINER_NOT_STARTED
    elif ending.code == _KILLED:
        cause = Cause.KILLED_AFTER_GRACE if pod.deleting else Cause.KILLED
    else:
        cause = words.refined(_of_code(ending.code), ending.message)
    # Of a pod that was killed with its agent the kubelet keeps the last lines of its log: no reason for anything.
    said = f": {ending.message}" if ending.message and ending.code != _KILLED else ""
    return _of_pod(pod, cause, f"pod {pod.name} ended with code {ending.code}{said}", job)


def _of_pod(pod: Pod, cause: Cause, message: str, job: str) -> Trouble:
    code = pod.ending.code if pod.ending else None
    named = f"pod {pod.name}"
    return Trouble(
        cause=cause,
        message=message[:1500],
        time=pod.ending.time if pod.ending else "",
        attempt=pod.attempt,
        rank=pod.rank,
        node=pod.node,
        pod=pod.name,
        exit_code=code,
        fault_class=failure_class(code).value if code else "",
        evidence=(
            Evidence(
                source=named,
                text=message.removeprefix(f"{named} ")[:1024],
                time=pod.ending.time if pod.ending else "",
            ),
        ),
        next=advice(cause, job=job, nodes=(pod.node,), attempt=pod.attempt),
    )


def _of_code(code: int) -> Cause:
    return next((cause for known, cause in OF_CODE.items() if known == code and code), Cause.APPLICATION_ERROR)


def _of_disruption(word: str) -> Cause:
    if word == _NODE_LOST:
        return Cause.NODE_LOST
    return Cause.PREEMPTED if word in _PREEMPTED else Cause.EVICTED


def _disruption(pod: Pod) -> str:
    where = pod.node or "its node"
    if pod.disrupted == _NODE_LOST:
        return f"{where}, the node of pod {pod.name}, is gone"
    said = f": {pod.evicted}" if pod.evicted else ""
    return f"pod {pod.name} had to leave {where} ({pod.disrupted}){said}"


def of_last_fault(raw: Object, *, attempt: int, end_reason: str, job: str) -> Trouble:
    """The trouble that status.lastFault tells, which ended `attempt` for `end_reason`."""
    kind, said = text(raw.get("class"), 64), [text(one, 1024) for one in texts(raw, "evidence")]
    message = said[0] if said else f"a fault of class {kind}"
    cause = next((cause for known, cause in OF_CLASS.items() if known == kind), Cause.APPLICATION_ERROR)
    if kind == FailureClass.GPU and raw.get("verdict") == GpuVerdict.RESTART_PROCESS:
        cause = Cause.GPU_PROCESS_FAULT
    precise = words.refined(cause, message)
    end_reason = text(raw.get("reason"), 253) or end_reason
    if precise is cause and (told := named(end_reason)) and not _is_broader(told, cause):
        precise = told
    node, gpu = text(raw.get("nodeName"), 253), part(raw, "gpu")
    time = text(raw.get("time"), 40)
    return Trouble(
        cause=precise,
        message=message,
        time=time,
        attempt=attempt,
        rank=integer(raw.get("rank")),
        node=node,
        gpu=integer(gpu.get("index")),
        gpu_uuid=text(gpu.get("uuid"), 64),
        xid=integer(raw.get("xid")),
        fault_class=kind,
        verdict=text(raw.get("verdict"), 64),
        action=text(raw.get("action"), 256),
        victims=integer(raw.get("victims")),
        evidence=tuple(Evidence(source="status.lastFault", text=one, time=time) for one in said[:MAX_EVIDENCE]),
        next=advice(precise, job=job, nodes=(node,), attempt=attempt),
    )


def of_kept_fault(raw: Object, *, attempt: int, end_reason: str, job: str) -> Trouble:
    """The trouble of which status.attempts kept no more than where it was."""
    index, xid = integer(raw.get("gpuIndex")), integer(raw.get("xid"))
    where = [f"GPU {index}" if index is not None else "", f"XID {xid}" if xid is not None else ""]
    known = named(end_reason)
    said = " ".join(one for one in where if one) or (known.meaning if known else end_reason)
    told = of_last_fault(
        {**raw, "gpu": {"index": index}, "evidence": [said]}, attempt=attempt, end_reason=end_reason, job=job
    )
    return replace(told, evidence=tuple(replace(one, source="status.attempts") for one in told.evidence))


def _is_broader(told: Cause, cause: Cause) -> bool:
    """Whether an attempt's end says less than its fault: a budget that is used up, or the class over a GPU's verdict."""
    return told.part in (Part.OVER, Part.WELL) or (told, cause) == (Cause.GPU_FAULT, Cause.GPU_PROCESS_FAULT)


def root_first(troubles: Iterable[Trouble]) -> list[Trouble]:
    """The cause before its victims: who only lost a peer, or was told to go, never hides why. Then by their own times."""
    return sorted(troubles, key=lambda one: (one.cause in VICTIMS, one.time or "9", one.rank or 0))
