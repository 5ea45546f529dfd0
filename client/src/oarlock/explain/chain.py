"""The chain: what happened, one line each, in the order of time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oarlock import in_words
from oarlock.clock import parsed, when
from oarlock.explain.attempts import Lines
from oarlock.explain.rounds import went_on
from oarlock.explain.some_names import some
from oarlock.facts.model import Facts
from oarlock.parts import part
from oarlock.story import Attempt, Cordon, Moment, Now, Trouble
from oarlock_api.contract.wire import number, text

_TOLD = {"Suspending", "Suspended", "NodeReturned", "NodeMarked", "CordonRefused", "CordonFailed", "CordonDryRun"} | {
    "PodForceDeleted", "PodNotStopping", "PlacementTimeout", "SlowNetwork", "NonFiniteLoss", "GPUWarning", "SlowRank",
    "CheckpointStorageFull", "CheckpointNotCopied", "GPUUnmonitored", "KeyRefused", "StatusSilent", "NodeNotReady",
    "GraceTooShort", "SparesLacking", "FewerNodes", "RequestNotServed", "MemoryOff", "MemoryNotCopied",
}  # fmt: skip
"""Events of the job that are no attempt's beginning or end, and are told as they are."""
_LINES = {"Degraded", "SlowRank", "Drill", "Check", "Note", "Stacks"}
"""The same of lines of the history."""


def chain(
    facts: Facts,
    lines: Lines,
    attempts: Sequence[Attempt],
    *,
    cordons: Sequence[Cordon],
    now: Now,
    trouble: Trouble | None,
) -> tuple[Moment, ...]:
    """All moments. Of two that say the same of one time, one."""
    found = [
        *_job(facts),
        *(moment for one in attempts for moment in _attempt(one)),
        *(_cordon(one) for one in cordons),
        *_events(facts),
        *_lines(lines),
        *_waits(trouble, attempts, now),
        *_end(facts, now),
    ]
    known = {(one.time[:19], one.what, one.text): one for one in found if one.time}
    # Objects are dated to the second, and statuses more finely: within one, what was told first came first; but what is
    # resumed within the second was suspended before.
    return tuple(sorted(known.values(), key=lambda one: (_second(one.time), one.what != "Suspended")))


def _job(facts: Facts) -> Iterator[Moment]:
    if facts.job:
        made = text(facts.job["metadata"].get("creationTimestamp"), 40)
        yield Moment(time=made, what="Created", text="the job was applied")


def _attempt(one: Attempt) -> Iterator[Moment]:
    again = f", because of {one.reason}" if one.reason and one.number > 1 else ""
    image = f" with {one.image}" if one.image and one.number == 1 else ""
    yield Moment(
        time=one.start_time, what="Attempt", text=f"attempt {one.number} begins{image}{again}", attempt=one.number
    )
    if one.first_step_time:
        told = ", ".join(
            f"{in_words.stage(stage.name)} {_seconds(stage.seconds)}" for stage in one.stages if stage.seconds >= 0.05
        )
        where = f" on {some(one.node_names)}" if one.node_names else ""
        where += f", earlier on {some(one.replaced_node_names)}" if one.replaced_node_names else ""
        resumed = f" from step {one.resumed_from_step:,}" if one.resumed_from_step else ""
        lost = f", {one.lost_steps:,} steps are done again" if one.lost_steps else ""
        yield Moment(
            time=one.first_step_time,
            what="Training",
            text=f"attempt {one.number} trains{where}{resumed}{lost}" + (f" ({told})" if told else ""),
            attempt=one.number,
        )
    for round_ in one.rounds:
        ended = round_.fault
        yield Moment(
            time=ended.time,
            what=ended.cause,
            text=f"{where_of(ended)}{ended.message}; {went_on(round_)}",
            attempt=one.number,
            rank=ended.rank,
            node=ended.node,
        )
    if one.faults:
        fault = one.faults[0]
        others = "1 other pod" if fault.victims == 1 else f"{fault.victims} other pods"
        victims = f"; {others} ended because of it" if fault.victims else ""
        anew = f"; all pods were made anew: {one.not_in_place}" if one.not_in_place else ""
        yield Moment(
            time=fault.time or one.end_time,
            what=fault.cause,
            text=f"{where_of(fault)}{fault.message}{victims}{anew}",
            attempt=one.number,
            rank=fault.rank,
            node=fault.node,
        )
    if one.decision:
        yield Moment(time=one.end_time, what="Decision", text=one.decision, attempt=one.number)


def where_of(fault: Trouble) -> str:
    """`node-2, pod 1, GPU 0: ` as far as it is known and the message does not say it."""
    # A pod's name ends with its number, or with that and its incarnation.
    of_the_pod = fault.rank is None or re.search(rf"-{fault.rank}(-i\d+)? on ", fault.message)
    pod = "" if of_the_pod else f"pod {fault.rank}"
    parts = [fault.node, pod, f"GPU {fault.gpu}" if fault.gpu is not None else ""]
    said = ", ".join(one for one in parts if one and one not in fault.message)
    return f"{said}: " if said else ""


def _cordon(one: Cordon) -> Moment:
    done = "is cordoned" if one.done_time else "is to be cordoned"
    return Moment(
        time=one.done_time or one.time,
        what="NodeCordoned",
        text=f"{one.node} {done}: {one.reason}",
        attempt=one.attempt,
        node=one.node,
    )


def _events(facts: Facts) -> Iterator[Moment]:
    for event in facts.events:
        about, reason = part(event, "involvedObject"), text(event.get("reason"), 128)
        if about.get("kind") == "TrainingJob" and reason in _TOLD:
            yield Moment(time=when(event), what=reason, text=text(event.get("message"), 1024))


def _lines(lines: Lines) -> Iterator[Moment]:
    for line in lines.all:
        kind, said = text(line.get("type"), 64), text(line.get("message"), 1024)
        if kind in _LINES and said:
            what = text(line.get("reason"), 64) or kind
            yield Moment(
                time=text(line.get("time"), 40),
                what=kind if kind in ("Drill", "SlowRank", "Check") else what,
                text=said,
                attempt=line.get("attempt"),
                rank=line.get("rank"),
                node=text(line.get("node"), 253),
            )
    saved = [line for line in lines.all if line.get("type") == "Checkpoint"]
    if saved:
        data = part(saved[-1], "data")
        yield Moment(
            time=text(saved[-1].get("time"), 40),
            what="Checkpoint",
            text=f"the newest checkpoint is step {data.get('step')}",
            attempt=saved[-1].get("attempt"),
        )


def _waits(trouble: Trouble | None, attempts: Sequence[Attempt], now: Now) -> Iterator[Moment]:
    ended = now.phase in ("Failed", "Succeeded") and trouble and trouble.message in now.message
    known = [fault for one in attempts for fault in (*one.faults, *(each.fault for each in one.rounds))]
    if trouble and not ended and trouble not in known:
        yield Moment(
            time=trouble.time,
            what=trouble.cause,
            text=": ".join((f"{where_of(trouble)}{trouble.message}", *filter(None, ["; ".join(trouble.details)]))),
            attempt=trouble.attempt,
            node=trouble.node,
        )


def _end(facts: Facts, now: Now) -> Iterator[Moment]:
    ended = text(part(facts.job or {}, "status").get("completionTime"), 40)
    if ended:
        yield Moment(time=ended, what=now.phase, text=now.message)


def _seconds(value: float) -> str:
    if number(value) is None or value < 100:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _second(time: str) -> float:
    found = parsed(time)
    return found.timestamp() // 1 if found else float("inf")
