"""While what ended an attempt is still looked for: victims speak first, and know no more than that a peer is gone.

The operator waits a second for the cause to speak up, and judges once more when all pods of the attempt have stopped. Until
then a lost peer is no answer, and nobody is sent to look at the network.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from oarlock.clock import parsed
from oarlock.explain.causes import Cause
from oarlock.facts.model import Facts
from oarlock.parts import part
from oarlock.story import Attempt

PATIENCE = timedelta(seconds=30)
"""For so long a victim's word waits for a judgement: without an operator there comes none."""


def with_causes_sought(facts: Facts, attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """The attempts; a lost peer that may still turn out to be another pod's doing is told as that."""
    status = part(facts.job or {}, "status")
    if not status or status.get("completionTime"):
        return attempts
    current, drains = status.get("attempt"), part(status, "recovery").get("stage") == "Drain"
    leaving = max((one.number for one in attempts if one.number != current), default=None) if drains else None

    def told(one: Attempt) -> Attempt:
        fault = one.faults[0] if one.faults else None
        if fault is None or fault.cause != Cause.PEER_LOST:
            return one
        unjudged = one.number == current and not one.end_reason and _is_fresh(fault.time, facts.time)
        if not unjudged and one.number != leaving:
            return one
        said = f"pods lost a peer, and why is still looked for; the first of them says: {fault.message}"
        sought = replace(fault, cause=Cause.FINDING_CAUSE, message=said, node="", next=Cause.FINDING_CAUSE.next)
        return replace(one, faults=(sought, *one.faults[1:]))

    return tuple(told(one) for one in attempts)


def _is_fresh(time: str, now: str) -> bool:
    then, gathered = parsed(time), parsed(now)
    return then is not None and gathered is not None and gathered - then < PATIENCE
