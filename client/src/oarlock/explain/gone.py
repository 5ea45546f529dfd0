"""How a job stood when its output was written last: all that is known of one whose object is gone, or is not asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from oarlock.explain.advice import advice
from oarlock.explain.attempts import Lines
from oarlock.explain.causes import Cause, named
from oarlock.explain.now import going
from oarlock.facts.model import Facts, Output
from oarlock.story import Attempt, Now
from oarlock_api.contract.figures import parse_line
from oarlock_api.contract.wire import integer, text

PHASE = "Gone"
"""In the place of a phase of the status, which nobody has any more, unless the output tells a good end."""
_RECENT = 64
"""Lines of figures by whose pace the time that is left is reckoned."""


def now_of_the_output(facts: Facts, lines: Lines, attempts: Sequence[Attempt]) -> Now:
    """The last that the output tells; of a job that runs while its own agent asks, how far it is."""
    if facts.phase == "Running" and attempts and facts.output:
        return _running(facts.output, attempts)
    over = _over(facts, lines, attempts)
    return replace(over, phase=facts.phase or over.phase)


def _running(output: Output, attempts: Sequence[Attempt]) -> Now:
    newest = [
        known for known in map(parse_line, output.metrics[-_RECENT:]) if known.step is not None and known.total_steps
    ]
    step, total = (newest[-1].step, newest[-1].total_steps) if newest else (None, None)
    pace = [known.seconds_per_step for known in newest if known.seconds_per_step is not None]
    eta = round((total - step) * median(pace)) if pace and total and step is not None else None
    cause = Cause.TRAINING if attempts[-1].first_step_time else Cause.STARTING
    message = going(attempts[-1], step, total)
    next_ = advice(cause, job="")
    return Now(phase="Running", cause=cause, message=message, next=next_, step=step, total_steps=total, eta_seconds=eta)


def _over(facts: Facts, lines: Lines, attempts: Sequence[Attempt]) -> Now:
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
    reasons = {text(line.get("reason"), 64) for line in ended[-1:]}  # of rank 0's pods before, the attempt went on
    if newest is None:
        return _without_story(facts.output, step, kept)
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


def _without_story(output: Output | None, step: int | None, kept: str) -> Now:
    """Of ranks that had no agent, as those of `oarlock-trainer train`, or whose history was off."""
    raw = output.metrics[-1] if output and output.metrics else {}
    last = parse_line(raw)
    end = integer(output.finished.get("step")) if output and output.finished else None
    if end is not None and (last.step or 0) <= end:  # it may have been given more steps since
        return _now(Cause.SUCCEEDED, f"it ended well after step {end:,}{kept}", step=step)
    if last.step is None:
        return _now(Cause.GONE, f"nothing is known of this job{kept}", step=step)
    of = f" of {last.total_steps:,}" if last.total_steps else ""
    said = f"it left no history; its last step was {last.step:,}{of}, at {text(raw.get('time'), 40)}{kept}"
    return _now(Cause.GONE, said, step=step)


def _now(
    cause: Cause, message: str, *, step: int | None, node: str = "", rank: int | None = None, next_: str = ""
) -> Now:
    return Now(
        phase=PHASE if cause is not Cause.SUCCEEDED else "Succeeded",
        cause=cause,
        message=message,
        next=next_ or advice(cause, job=""),
        node=node,
        rank=rank,
        step=step,
    )
