"""A pod as the API tells it, reduced to what explains a job."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock.facts.model import Object
from oarlock_api.contract.kubelet_words import REJECTED
from oarlock_api.contract.names import AVOIDED_ANNOTATION, Label
from oarlock_api.contract.node_affinity import kept_off
from oarlock_api.contract.report import Report, parse_report
from oarlock_api.contract.wire import WireError, integer, text

CONTAINER = "trainer"
_HARMLESS = {"", "ContainerCreating", "PodInitializing"}
"""Waiting reasons that say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How its container, or the pod itself, ended. `code` is None where no container of ours ran."""

    code: int | None
    reason: str = ""
    message: str = ""
    time: str = ""
    report: Report | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What is asked of a pod. `unplaced` are the scheduler's words, `waits` the kubelet's: its reason, a colon, its words.

    `keeps_off` are nodes that its affinity excludes, `avoided` those that its job avoided when it was made. `disrupted` says
    who takes it away, in the API's own word; `own_limit` that a kubelet evicted it for a limit of its own.
    """

    name: str
    uid: str
    attempt: int
    rank: int
    node: str = ""
    image: str = ""
    started: bool = False
    ready: bool = False
    deleting: bool = False
    gated: bool = False
    unplaced: str = ""
    waits: str = ""
    disrupted: str = ""
    evicted: str = ""
    keeps_off: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()
    since: str = ""
    ending: Ending | None = None


def read_pod(raw: Object) -> Pod:
    """A pod's facts. Fields that are not there read as empty."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = metadata.get("labels") or {}
    conditions = {one.get("type"): one for one in status.get("conditions") or []}
    main = _status_of(status.get("containerStatuses"), CONTAINER)
    state = main.get("state") or {}
    scheduled, target = conditions.get("PodScheduled") or {}, conditions.get("DisruptionTarget") or {}
    placed = bool(spec.get("nodeName"))
    queue = conditions.get("TerminationTarget") or {}
    # What a kubelet did not let in has its own words for it, and was never there.
    evicted = status.get("reason") == "Evicted" and not str(status.get("message")).startswith(REJECTED)
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        attempt=_number(labels.get(Label.ATTEMPT.value)),
        rank=_number(labels.get(Label.RANK.value)),
        node=spec.get("nodeName") or "",
        image=next((one.get("image", "") for one in spec.get("containers") or [] if one.get("name") == CONTAINER), ""),
        started="running" in state or "terminated" in state,
        ready=(conditions.get("Ready") or {}).get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        gated=not placed and scheduled.get("reason") == "SchedulingGated",
        unplaced="" if placed or scheduled.get("status") != "False" else text(scheduled.get("message"), 1024),
        waits=_waits(state) or _init_waits(status.get("initContainerStatuses")),
        disrupted=_disrupted(target, queue),
        evicted=text(status.get("message"), 512) or "Evicted" if evicted else "",
        keeps_off=frozenset(text(node, 253) for node in kept_off(spec.get("affinity") or {})),
        avoided=frozenset(text((metadata.get("annotations") or {}).get(AVOIDED_ANNOTATION), 1024).split(",")) - {""},
        since=(scheduled.get("lastTransitionTime") if placed else metadata.get("creationTimestamp")) or "",
        ending=_ending(raw, state.get("terminated")),
    )


def _status_of(statuses: object, name: str) -> Object:
    found: list[Object] = statuses if isinstance(statuses, list) else []
    return next((one for one in found if one.get("name") == name), {})


def _waits(state: Object) -> str:
    waiting = state.get("waiting") or {}
    reason = text(waiting.get("reason"), 64)
    return "" if reason in _HARMLESS else f"{reason}: {text(waiting.get('message'), 1024)}"


def _init_waits(statuses: object) -> str:
    found: list[Object] = statuses if isinstance(statuses, list) else []
    return next((words for one in found if (words := _waits(one.get("state") or {}))), "")


def _disrupted(target: Object, queue: Object) -> str:
    if target.get("status") == "True":
        return text(target.get("reason"), 64)
    return text(queue.get("reason"), 64) or "TerminationTarget" if queue.get("status") == "True" else ""


def _ending(raw: Object, terminated: Object | None) -> Ending | None:
    status = raw.get("status") or {}
    if terminated is not None:
        said = text(terminated.get("message"), 4096)
        try:
            report = parse_report(said)
        except WireError:
            report = None
        code, labels = integer(terminated.get("exitCode")), raw["metadata"].get("labels") or {}
        of_this_pod = (_number(labels.get(Label.ATTEMPT.value)), _number(labels.get(Label.RANK.value)))
        if report and (
            report.pod_uid not in ("", raw["metadata"].get("uid")) or (report.attempt, report.rank) != of_this_pod
        ):
            # It speaks of another pod: nothing of it is believed, and the exit code alone speaks.
            report, said = None, ""
        if report and report.code != code:
            # The class is the exit code's, as for the operator, and what the report says is text.
            said, report = report.summary, None
        return Ending(
            code=code,
            reason=text(terminated.get("reason"), 64),
            message="" if report else said[-1024:].strip(),
            time=text(terminated.get("finishedAt"), 40),
            report=report,
        )
    if status.get("phase") == "Failed":
        return Ending(code=None, reason=text(status.get("reason"), 64), message=text(status.get("message"), 1024))
    return None


def _number(value: object) -> int:
    return int(value) if isinstance(value, str) and value.isdecimal() else 0
