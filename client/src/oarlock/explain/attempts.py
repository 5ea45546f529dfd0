"""The attempts of a job, put together from the status, the history in the output, reports, pods and Events.

Each of them may be missing: a status keeps ten attempts, Events last an hour, pods go. What the operator wrote outranks
what others say of the same attempt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from oarlock.clock import parsed, when, written
from oarlock.explain import faults, words
from oarlock.explain.advice import advice, job_of
from oarlock.explain.causes import OF_CLASS, Cause, Part, named
from oarlock.explain.pods import Pod
from oarlock.explain.rounds import GROW, rounds
from oarlock.facts.model import Facts, Object
from oarlock.parts import objects, part, texts
from oarlock.story import Attempt, Evidence, Place, Round, Stage, Trouble
from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.report import Report, parse_report
from oarlock_api.contract.wire import WireError, integer, number, text

STAGES = ("detect", "decide", "drain", "cordon", "queue", "schedule", "start", "firstStep")
"""Of status.attempts[].stageMilliseconds, in the order in which they are passed."""
_GOES_ON = ("Resumed", "RoundEnded", "RanksRestarted")
_AS_WISHED = ("Suspended", "NodeMarked", "SlowRank")
"""Why attempts end whose pods were told to go: that they left is no fault."""
_BROAD = (Cause.APPLICATION_ERROR, FailureClass.APPLICATION)
"""Why attempts ended whose program failed, however it did."""
_CLOCKS = timedelta(seconds=30)
"""Between those of two pods, at most."""
_NEXT = re.compile(r"[.;] Attempt (\d+) starts")
_POD = re.compile(r"pod (?P<pod>\S+-\d+-(?P<rank>\d+)(?:-i\d+)?) on (?P<node>[\w.-]+):")


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of the history that are of this job: another one may have used the same output before."""

    all: tuple[Object, ...]

    @classmethod
    def of(cls, facts: Facts) -> Lines:
        """Those of the job's uid; of a job that is gone, those of the last one that wrote any."""
        found = facts.output.history if facts.output else ()
        uid = uid_of(facts)
        return cls(tuple(line for line in found if text(line.get("job"), 64) in ("", uid)))

    def at(self, attempt: int, kind: str = "") -> list[Object]:
        """Lines of an attempt, of one type or of all."""
        return [line for line in self.all if line.get("attempt") == attempt and kind in ("", line.get("type"))]


def uid_of(facts: Facts) -> str:
    """The job's uid: its object's, else that of the fence, else that of the last line of the history."""
    if facts.job:
        return text(facts.job["metadata"].get("uid"), 64)
    if facts.output and facts.output.owner:
        return text(facts.output.owner.get("jobUid"), 64)
    lines = facts.output.history if facts.output else ()
    return next((uid for line in reversed(lines) if (uid := text(line.get("job"), 64))), "")


def attempts(facts: Facts, pods: Sequence[Pod], lines: Lines) -> tuple[Attempt, ...]:
    """All attempts of which anything is known, the oldest first."""
    status = part(facts.job or {}, "status")
    booked = objects(status, "rounds")
    records = {number: one for one in objects(status, "attempts") if (number := integer(one.get("number"))) is not None}
    reports = _reports(facts, lines)
    numbers = {*records, *(pod.attempt for pod in pods), *(report.attempt for report in reports)}
    numbers |= {number for line in lines.all if (number := integer(line.get("attempt")))}
    trains = status.get("phase") == "Running" and not part(status, "recovery").get("stage")
    of_last_fault = _attempt_of(part(status, "lastFault"), records, booked, trains=trains)
    told = _told(facts)
    found = []
    for number in sorted(numbers - {0}):
        record = records.get(number, {})
        # A pod that was made anew within the attempt has a longer name, and comes last.
        own = sorted((pod for pod in pods if pod.attempt == number), key=lambda pod: (len(pod.name), pod.name))
        places = _places(own, lines.at(number), record)
        where = {place.rank: place.node for place in places}
        troubles = _troubles(facts, own, lines.at(number), [one for one in reports if one.attempt == number], where)
        if number == of_last_fault:
            troubles = _with_the_operators_word(facts, status["lastFault"], record, troubles)
        if record.get("endReason") in _AS_WISHED:
            troubles = [one for one in troubles if one.cause is not Cause.LEFT_ON_REQUEST]
        # Pods go one by one: a victim's may be there when the one that it lost is gone.
        best = _with_what_was_kept(facts, told.get(number), record, number)
        if best and number != of_last_fault and (not troubles or troubles[0].cause in faults.VICTIMS):
            troubles = [best, *(one for one in troubles if one.rank != best.rank)]
        ended = rounds(booked, lines.at(number), attempt=number, where=where, job=job_of(facts))
        troubles = [one for one in troubles if not _was_replaced(one, ended)]
        one = _attempt(record, number=number, pods=own, lines=lines.at(number), places=places, troubles=tuple(troubles))
        # What ended the attempt after all is told as its fault.
        own_faults = {(fault.time, fault.rank) for fault in troubles}
        ended = tuple(each for each in ended if (each.fault.time, each.fault.rank) not in own_faults)
        found.append(replace(one, rounds=ended, replaced_node_names=_replaced(record, one, ended)))
    return tuple(_by_one_name(found))


def _replaced(record: Object, one: Attempt, ended: Iterable[Round]) -> tuple[str, ...]:
    """Nodes that lost pods were on, and the attempt is on no more."""
    names = texts(record, "replacedNodeNames") or [each.fault.node for each in ended if each.replaced]
    return tuple(dict.fromkeys(name for name in names if name and name not in one.node_names))


def _was_replaced(trouble: Trouble, ended: Iterable[Round]) -> bool:
    """Whether it is that of a pod which was made anew within the attempt: a round ended with it, and no attempt."""
    then = parsed(trouble.time)
    replaced = (parsed(one.fault.time) for one in ended if one.replaced and one.fault.rank == trouble.rank)
    return any(then is not None and time is not None and then <= time + _CLOCKS for time in replaced)


def _by_one_name(found: Iterable[Attempt]) -> Iterator[Attempt]:
    """Ends of programs under the name of their cause: an older operator, and the history, say no more than that it failed."""
    ended = ""
    for one in found:
        began = ended if ended and one.reason in _BROAD else one.reason
        ended = one.faults[0].cause if one.end_reason in _BROAD and one.faults else ""
        yield replace(one, reason=began, end_reason=ended or one.end_reason)


def _attempt(
    record: Object,
    *,
    number: int,
    pods: Sequence[Pod],
    lines: Sequence[Object],
    places: tuple[Place, ...],
    troubles: tuple[Trouble, ...],
) -> Attempt:
    started = next((line for line in lines if line.get("type") == "AttemptStarted"), {})
    # Rank 0's pod may have ended, and the attempt gone on with its next one.
    later = max((at for at, line in enumerate(lines) if line.get("type") in _GOES_ON), default=-1)
    ended = [line for line in lines[later + 1 :] if line.get("type") == "Ended"]
    resumed = next((integer(part(line, "data").get("step")) for line in lines if line.get("type") == "Resumed"), None)
    steps = [step for line in lines if (step := integer(part(line, "data").get("step"))) is not None]
    image = next((pod.image for pod in pods if pod.image), "") or text(part(started, "data").get("image"), 512)
    last = ended[-1] if ended else {}
    decided = next((line for line in lines if line.get("type") == "Decision"), {})
    start = text(record.get("startTime"), 40) or text(started.get("time"), 40)
    return Attempt(
        number=number,
        start_time=start,
        first_step_time=_first_step(record, start, lines),
        end_time=text(record.get("endTime"), 40) or text(last.get("time"), 40) or text(decided.get("time"), 40),
        reason=text(record.get("reason"), 253),
        end_reason=text(record.get("endReason"), 253) or text((decided or last).get("reason"), 253),
        image=image,
        places=places,
        node_names=tuple(texts(record, "nodeNames") or sorted({place.node for place in places if place.node})),
        removed_node_names=tuple(texts(record, "removedNodeNames")),
        resumed_from_step=integer(record.get("resumedFromStep", resumed)),
        lost_steps=integer(record.get("lostSteps")),
        last_step=max(steps, default=None),
        stages=_stages(record, lines),
        faults=troubles,
        decision=_decision(lines),
        not_in_place=text(record.get("notInPlace"), 1024) or text(part(decided, "data").get("notInPlace"), 1024),
    )


def _stages(record: Object, lines: Sequence[Object]) -> tuple[Stage, ...]:
    if known := _milliseconds(record):
        return tuple(
            Stage(name=f"{name[0].upper()}{name[1:]}", seconds=known[name] / 1000) for name in STAGES if known.get(name)
        )
    phases = [line for line in lines if line.get("type") == "Stage" and not line.get("rank")]
    told = [part(line, "data") for line in phases]
    return tuple(
        Stage(name=text(one.get("name"), 64), seconds=seconds)
        for one in told
        if (seconds := number(one.get("seconds"))) is not None
    )


def _milliseconds(record: Object) -> dict[str, int]:
    known = part(record, "stageMilliseconds")
    return {name: took for name in STAGES if (took := integer(known.get(name))) is not None}


def _first_step(record: Object, start: str, lines: Sequence[Object]) -> str:
    """By the operator's stages, which begin with the attempt; else when the history's leader saw it."""
    known = _milliseconds(record)
    if known.get("firstStep") is not None and (began := parsed(start)):
        took = sum(known.get(name) or 0 for name in STAGES if name not in ("detect", "decide"))
        return written(began + timedelta(milliseconds=took))
    stages = (line for line in lines if line.get("type") == "Stage")
    return next((text(one.get("time"), 40) for one in stages if part(one, "data").get("name") == "FirstStep"), "")


def _decision(lines: Sequence[Object]) -> str:
    line = next((one for one in lines if one.get("type") == "Decision"), {})
    data = part(line, "data")
    said = text(line.get("message"), 1024) or text(line.get("reason"), 253)
    rule = text(data.get("rule"), 256)
    return f"{said} (rule {rule})" if said and rule and rule not in said else said


def _places(pods: Sequence[Pod], lines: Sequence[Object], record: Object) -> tuple[Place, ...]:
    """Rank -> node, from the pods, else from the history, else, of one node, from the status."""
    where: dict[int, str] = {}
    gang: dict[int, str] = {}
    for line in lines:
        if line.get("type") == "GangComplete":
            told = part(part(line, "data"), "nodes")
            ranks = {int(rank): text(node, 253) for rank, node in told.items() if len(rank) < 8 and rank.isdecimal()}
            gang |= ranks  # a pod that was made anew is on another node than the one before it
        elif (rank := integer(line.get("rank"))) is not None and (node := text(line.get("node"), 253)):
            where.setdefault(rank, node)
    where |= gang | {pod.rank: pod.node for pod in pods if pod.node}
    names = texts(record, "nodeNames")
    if not where and len(names) == 1:
        where = {0: names[0]}
    return tuple(Place(rank=rank, node=node) for rank, node in sorted(where.items()) if node)


def _reports(facts: Facts, lines: Lines) -> list[Report]:
    """Reports of endings that are of this job: files of an earlier job with the same output are older than it."""
    began = text(part(facts.job or {}, "metadata").get("creationTimestamp"), 40)
    began = began or next((text(line.get("time"), 40) for line in lines.all), "")
    found = []
    for raw in facts.output.reports if facts.output else ():
        report = _report(raw)
        if report and report.code and report.detected_at >= began:
            found.append(report)
    return found


def _report(raw: Object) -> Report | None:
    try:
        return parse_report(json.dumps(raw))
    except (WireError, TypeError):
        return None


def _troubles(
    facts: Facts, pods: Sequence[Pod], lines: Sequence[Object], reports: Sequence[Report], where: Mapping[int, str]
) -> list[Trouble]:
    """One for each rank that ended badly, the root cause first. A pod that is there says more than a copy of its report."""
    found: dict[int, Trouble] = {}
    for line in lines:
        if line.get("type") == "Fault" and (rank := integer(line.get("rank"))) is not None:
            found[rank] = _of_line(line, rank, where.get(rank, ""), job_of(facts))
    for report in reports:
        found[report.rank] = faults.of_report(report, job=job_of(facts), node=where.get(report.rank, ""))
    for pod in pods:
        if trouble := faults.of_pod(pod, job=job_of(facts)):
            found[pod.rank] = trouble
    return faults.root_first(found.values()) or [
        _of_line(line, integer(line.get("rank")), "", job_of(facts))
        for line in lines
        if line.get("type") == "Decision" and _is_a_trouble(line)
    ]


def _is_a_trouble(decision: Object) -> bool:
    """Whether a decision was about something that went wrong: of a lost node nobody else leaves a word."""
    cause = named(text(decision.get("reason"), 128))
    return cause is not None and cause.part not in (Part.WELL, Part.OVER, Part.CORDONS)


def _of_line(line: Object, rank: int | None, node: str, job: str) -> Trouble:
    data = part(line, "data")
    if report := _report({"attempt": line.get("attempt"), "rank": rank, **data}):
        told = report if report.summary else replace(report, summary=text(line.get("message"), 1500))
        return faults.of_report(told, job=job, node=text(line.get("node"), 253) or node)
    kind, message = text(line.get("reason"), 64), text(line.get("message"), 1500)
    told_cause = named(kind) or next((one for known, one in OF_CLASS.items() if known == kind), None)
    cause = words.refined(told_cause or Cause.APPLICATION_ERROR, message)
    time = text(line.get("time"), 40)
    where = text(line.get("node"), 253) or node
    return Trouble(
        cause=cause,
        message=message or kind,
        time=time,
        attempt=integer(line.get("attempt")),
        rank=rank,
        node=where,
        fault_class=kind,
        evidence=(Evidence(source="history", text=message or kind, time=time),),
        next=advice(cause, job=job, nodes=(where,), attempt=integer(line.get("attempt"))),
    )


def _attempt_of(fault: Object, records: Mapping[int, Object], rounds: Sequence[Object], *, trains: bool) -> int | None:
    """Which attempt status.lastFault ended: the last that had ended, or is to end, and had begun before it.

    None where it ended a round only, and the attempt goes on.
    """
    if not fault:
        return None
    of_round = next((one for one in rounds if one.get("endedTime") == fault.get("time")), {})
    number = integer(of_round.get("attempt"))
    if number is not None and number in records:
        return number if records[number].get("endReason") else None
    ended = [number for number, record in records.items() if record.get("endReason")]
    if not ended and trains:
        return None  # of a pod that the round does without, or that was made anew since
    time = text(fault.get("time"), 40)
    before = [number for number in ended if text(records[number].get("startTime"), 40)[:19] <= time[:19]]
    return max(before or ended, default=max(records, default=None))


def _with_the_operators_word(facts: Facts, raw: Object, record: Object, troubles: list[Trouble]) -> list[Trouble]:
    """The operator's attribution first, with what the pod of that rank has beside; the others behind it."""
    told = faults.of_last_fault(
        raw, attempt=record["number"], end_reason=text(record.get("endReason"), 253), job=job_of(facts)
    )
    same = next((one for one in troubles if one.rank == told.rank), None)
    if same:
        evidence = {one.text: one for one in (*same.evidence, *told.evidence)}
        if (told.cause, same.cause) == (Cause.KILLED, Cause.OOM_KILLED):
            told = replace(told, cause=same.cause, next=same.next)
        if (told.cause, told.node) == (same.cause, same.node):
            told = replace(told, next=same.next)  # it knows whether a driver speaks in the report
        told = replace(
            told,
            pod=same.pod,
            exit_code=same.exit_code,
            first_rank=same.first_rank,
            evidence=tuple(evidence.values())[: faults.MAX_EVIDENCE],
        )
    return [told, *(one for one in troubles if one is not same)]


def _with_what_was_kept(facts: Facts, told: Trouble | None, record: Object, number: int) -> Trouble | None:
    """What Events tell of an attempt's end, with the place that the status has kept; these are gone after an hour."""
    raw = part(record, "fault")
    if not raw:
        return told
    kept = faults.of_kept_fault(raw, attempt=number, end_reason=text(record.get("endReason"), 253), job=job_of(facts))
    if told is None:
        return kept
    return replace(kept, message=told.message, pod=told.pod, evidence=told.evidence, cause=told.cause, next=told.next)


def _told(facts: Facts) -> dict[int, Trouble]:
    """Attempt -> why it ended, as the operator's Events tell it."""
    found = {}
    for event in facts.events:
        said = text(event.get("message"), 1024)
        after = _NEXT.search(said)
        if part(event, "involvedObject").get("kind") != "TrainingJob" or after is None:
            continue
        pod = _POD.search(said)
        reason, time = text(event.get("reason"), 128), when(event)
        told = said[: after.start()]
        cause = words.refined(named(reason) or Cause.APPLICATION_ERROR, told)
        node = pod["node"] if pod else ""
        found[int(after[1]) - 1] = Trouble(
            cause=cause,
            message=told,
            time=time,
            attempt=int(after[1]) - 1,
            rank=int(pod["rank"]) if pod else None,
            node=node,
            pod=pod["pod"] if pod else "",
            evidence=(Evidence(source=f"Event {reason}", text=told, time=time),),
            next=advice(cause, job=job_of(facts), nodes=(node,), attempt=int(after[1]) - 1),
        )
    return found


def last_trouble(found: Iterable[Attempt]) -> Trouble | None:
    """The root cause of the last fault that is known, whether it ended an attempt or a round."""
    for one in reversed(tuple(found)):
        if one.faults:
            return one.faults[0]
        if ended := [each.fault for each in one.rounds if each.rung != GROW]:
            return ended[-1]
    return None
