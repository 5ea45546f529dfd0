"""Rounds that ended while their attempt went on: from the status, and from the history, which outlives the job.

The leader writes a line when a round ends, and another with the first new step. The operator's row, where it has one,
outranks both: it has the pod's name and the rules; the lines have what is older than its last ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oarlock.explain import words
from oarlock.explain.advice import advice
from oarlock.explain.causes import OF_CLASS, Cause, named
from oarlock.facts.model import Object
from oarlock.parts import part
from oarlock.story import Evidence, Round, Trouble
from oarlock_api.contract.exit_codes import ExitCode, failure_class
from oarlock_api.contract.wire import integer, number, text

GROW, SHRINK, TAKE_SPARE, REPLACE_POD = "Grow", "Shrink", "TakeSpare", "ReplacePod"
"""Of the API's Rung; its models are not imported here."""
_OF_LOST_PODS = (SHRINK, TAKE_SPARE, REPLACE_POD)
MOST = 100
"""Of one attempt: the newest."""


def rounds(
    booked: Sequence[Object], lines: Sequence[Object], *, attempt: int, where: Mapping[int, str], job: str
) -> tuple[Round, ...]:
    """Those of one attempt, the first one first. `booked`: status.rounds; `lines`: the attempt's; `where`: rank -> node."""
    told = {known: line for line in lines if line.get("type") == "RoundEnded" and (known := _number(line)) is not None}
    after = {
        known: line for line in lines if line.get("type") == "RanksRestarted" and (known := _number(line)) is not None
    }
    rows = {
        known: row
        for row in booked
        if row.get("attempt") == attempt and (known := integer(row.get("round"))) is not None
    }
    found = []
    for known in sorted({*told, *rows})[-MOST:]:
        row, ended = rows.get(known, {}), part(told.get(known, {}), "data")
        resumed = part(after.get(known, {}), "data")
        step = _first(row.get("resumedFromStep"), resumed.get("step"))
        reached = integer(ended.get("step"))
        lost = max(0, reached - step) if step is not None and reached is not None else None
        fault = _booked(row, job) if row else _told(told[known], where, job)
        down, silent = number(row.get("downSeconds")), number(row.get("silentSeconds"))
        waited, memory = number(row.get("startWaitSeconds")), row.get("resumedFromMemory", resumed.get("fromMemory"))
        found.append(
            Round(
                number=known,
                fault=fault,
                resumed_from_step=step,
                lost_steps=_first(row.get("lostSteps"), lost),
                down_seconds=number(resumed.get("downSeconds")) if down is None else down,
                silent_seconds=number(ended.get("silentSeconds")) if silent is None else silent,
                start_wait_seconds=number(resumed.get("startWaitSeconds")) if waited is None else waited,
                from_memory=memory if isinstance(memory, bool) else None,
                replaced=row.get("rung") in _OF_LOST_PODS or ended.get("lostPod") is True,
                rung=text(row.get("rung"), 64),
                nodes=integer(row.get("nodeCount")),
            )
        )
    return tuple(found)


def went_on(one: Round) -> str:
    """What came after it, in words."""
    where = f" from step {one.resumed_from_step:,}" if one.resumed_from_step is not None else ""
    if one.resumed_from_step and one.from_memory is not None:
        where += " in memory" if one.from_memory else " of a checkpoint"
    lost = [_steps(one.lost_steps)] if one.lost_steps else []
    lost += [f"{one.down_seconds:.1f} s"] if one.down_seconds is not None else []
    until = [f"{one.silent_seconds:.0f} s of it until the hang was found"] if one.silent_seconds else []
    until += [f"{one.start_wait_seconds:.1f} s of it until the ranks were started"] if one.start_wait_seconds else []
    spent = "".join(f", {words}" for words in until)
    how = "its pod was made anew, and all ranks started" if one.replaced else "ranks started anew in their pods"
    how = {
        GROW: f"all ranks started on {one.nodes or 'more'} nodes",
        SHRINK: f"ranks started without its pod on {one.nodes or 'fewer'} nodes",
        TAKE_SPARE: "a spare took its place, and all ranks started",
    }.get(one.rung, how)
    return how + where + (f": {' and '.join(lost)} lost{spent}" if lost else "")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _number(line: Object) -> int | None:
    return integer(part(line, "data").get("round"))


def _first(one: object, other: object) -> int | None:
    known = integer(one)
    return integer(other) if known is None else known


def _booked(row: Object, job: str) -> Trouble:
    reason, code = named(text(row.get("reason"), 253)), integer(row.get("exitCode"))
    time, node = text(row.get("endedTime"), 40), text(row.get("nodeName"), 253)
    return _trouble(row, reason=reason, code=code, time=time, node=node, source="status.rounds", job=job)


def _told(line: Object, where: Mapping[int, str], job: str) -> Trouble:
    rank = integer(line.get("rank"))
    node = text(line.get("node"), 253) or where.get(-1 if rank is None else rank, "")
    code = integer(part(line, "data").get("code"))
    time = text(line.get("time"), 40)
    return _trouble(line, reason=None, code=code, time=time, node=node, source="history", job=job)


def _trouble(
    told: Object, *, reason: Cause | None, code: int | None, time: str, node: str, source: str, job: str
) -> Trouble:
    kind, attempt = failure_class(code or 1), integer(told.get("attempt"))
    replaced = told.get("rung") in _OF_LOST_PODS or part(told, "data").get("lostPod") is True
    said = text(told.get("message"), 1024)
    known = reason or OF_CLASS[kind]
    if known is Cause.GPU_FAULT and code == ExitCode.RESTART_PROCESS:
        known = Cause.GPU_PROCESS_FAULT
    cause = words.refined(known, said)
    return Trouble(
        cause=cause,
        message=said or cause.meaning,
        time=time,
        attempt=attempt,
        rank=integer(told.get("rank")),
        node=node,
        fault_class=kind.value,
        exit_code=code,
        action={
            SHRINK: "the others went on without its pod",
            TAKE_SPARE: "a spare took its place",
        }.get(text(told.get("rung"), 64), "its pod was made anew" if replaced else "ranks started again in their pods"),
        evidence=(Evidence(source=source, text=said, time=time),) if said else (),
        next=advice(cause, job=job, nodes=(node,), attempt=attempt),
    )
