"""How a job stood when its output was written last: all that is known of one whose object is gone."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.explain import faults
from oarlock.explain.attempts import Lines
from oarlock.explain.causes import Cause, named
from oarlock.facts.model import Facts
from oarlock.story import Attempt, Now
from oarlock_api.contract.wire import integer, text

PHASE = "Gone"
"""In the place of a phase of the status, which nobody has any more."""


def now_of_the_output(facts: Facts, lines: Lines, attempts: Sequence[Attempt]) -> Now:
    """The last that the output tells."""
    step = max(
        (
            saved
            for one in (facts.output.checkpoints if facts.output else ())
            if one.get("committed") and (saved := integer(one.get("step"))) is not None
        ),
        default=None,
    )
    kept = f"; the newest checkpoint is step {step:,}" if step is not None else ""
    newest = attempts[-1] if attempts else None
    ended = [
        line for line in lines.all if newest and line.get("attempt") == newest.number and line.get("type") == "Ended"
    ]
    reasons = {text(line.get("reason"), 64) for line in ended}
    if newest is None:
        return _now(Cause.GONE, f"nothing is known of this job{kept}", step=step)
    if newest.faults:
        trouble = newest.faults[0]
        cause = named(trouble.cause) or Cause.GONE
        said = f"attempt {newest.number} ended: {trouble.message}{kept}"
        return _now(cause, said, step=step, node=trouble.node, rank=trouble.rank, next_=trouble.next)
    if reasons == {"Succeeded"}:
        return _now(Cause.SUCCEEDED, f"attempt {newest.number} ended well{kept}", step=step)
    if "LeftOnRequest" in reasons:
        return _now(Cause.LEFT_ON_REQUEST, f"attempt {newest.number} was told to go, and saved{kept}", step=step)
    heard = text(lines.all[-1].get("time"), 40) if lines.all else ""
    since = f"; the last word is from {heard}" if heard else ""
    return _now(Cause.GONE, f"attempt {newest.number} left no word of its end{since}{kept}", step=step)


def _now(
    cause: Cause, message: str, *, step: int | None, node: str = "", rank: int | None = None, next_: str = ""
) -> Now:
    return Now(
        phase=PHASE,
        cause=cause,
        message=message,
        next=next_ or faults.advice(cause, job=""),
        node=node,
        rank=rank,
        step=step,
    )
