"""explain(facts) -> Story: from the first minute in a queue to the last restart, each step with its evidence. Pure.

    facts -> those of this job -> pods -> attempts with their faults -> what holds it up now -> chain, curve

The words that it gives are those of `causes`. It imports neither kubernetes nor a terminal: the trainer's report uses it too,
and what it imports stands in the agent's one file (the trainer's commands/write_bundle.py).
"""

from __future__ import annotations

from oarlock.explain import now as now_
from oarlock.explain.attempts import Lines, attempts, last_trouble, uid_of
from oarlock.explain.causes import Cause
from oarlock.explain.chain import chain
from oarlock.explain.cordons import cordons
from oarlock.explain.curve import curve, timed, unseen
from oarlock.explain.gone import now_of_the_output
from oarlock.explain.own import own
from oarlock.explain.pods import read_pod
from oarlock.explain.settings import settings
from oarlock.explain.sought import with_causes_sought
from oarlock.facts.model import Facts
from oarlock.parts import objects, part
from oarlock.story import VERSION, Attempt, Now, Story, Trouble, Unknown
from oarlock_api.contract.wire import text

__all__ = ["explain"]


def explain(facts: Facts) -> Story:
    """The story of one job."""
    facts = own(facts)
    pods = [read_pod(raw) for raw in facts.pods]
    lines = Lines.of(facts)
    found = with_causes_sought(facts, attempts(facts, pods, lines))
    rows = timed(facts, lines, found)
    now, trouble = _now(facts, now_.Situation(facts, pods), lines, found)
    status = part(facts.job or {}, "status")
    off = cordons(facts)
    return Story(
        version=VERSION,
        namespace=facts.namespace,
        name=facts.name,
        uid=uid_of(facts),
        directory=facts.output.folder if facts.output else "",
        time=facts.time,
        now=now,
        trouble=trouble,
        attempts=found,
        cordons=off,
        avoided=tuple(text(one.get("name"), 253) for one in objects(status, "avoidedNodes")),
        chain=chain(facts, lines, found, cordons=off, now=now, trouble=trouble),
        curve=curve(rows),
        unseen=unseen(rows),
        settings=settings(facts),
        unknown=tuple(Unknown(what=one.what, why=one.why) for one in facts.missing),
    )


def _now(
    facts: Facts, situation: now_.Situation, lines: Lines, found: tuple[Attempt, ...]
) -> tuple[Now, Trouble | None]:
    last = last_trouble(found)
    if facts.job is None:
        return now_of_the_output(facts, lines, found), last
    phase = situation.status.get("phase")
    if phase == "Failed":
        held = now_.failure(situation, last)
    elif phase == "Suspended" and not part(facts.job, "spec").get("suspend"):
        held = now_.refused(situation)  # it is to go on, and something is in the way
    elif phase in ("Succeeded", "Suspended"):
        held = None
    else:
        unjudged = next((one.faults[0] for one in found if one.number == situation.attempt and one.faults), None)
        sought = last if last and last.cause == Cause.FINDING_CAUSE else None
        held = unjudged or sought or now_.hindrance(situation)
    return now_.now(situation, held, found), held or last
