"""The curve: loss and seconds per step, evenly thinned out; and the losses on data that is not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from oarlock.clock import parsed, written
from oarlock.explain.attempts import Lines
from oarlock.facts.model import Facts, Object
from oarlock.parts import objects, part
from oarlock.story import Attempt, Point, UnseenLoss
from oarlock_api.contract.wire import integer, number, text

MOST_UNSEEN = 2048
MOST = 512
"""Points: as many as a picture of a page's width shows."""
T = TypeVar("T")
Known = Mapping[int, Mapping[int, datetime]]
"""Attempt -> step -> when it was done."""


def timed(facts: Facts, lines: Lines, attempts: Sequence[Attempt]) -> list[tuple[Object, str]]:
    """Rows of metrics.jsonl where the output was read, else of the status, each with its time; empty where none is known.

    Where training went back, what came after that step is left out, whether it was done again yet or not.
    """
    rows: Sequence[Object] = facts.output.metrics if facts.output else ()
    if not rows:
        rows = objects(part(facts.job or {}, "status"), "curve")
    return _lasting(list(zip(rows, _times(rows, _known(lines, attempts)), strict=True)))


def _lasting(rows: Sequence[tuple[Object, str]]) -> list[tuple[Object, str]]:
    """Those that no later step has undone: a step's row undoes what stands before it and tells of that step or later."""
    kept: list[tuple[Object, str]] = []
    undone = math.inf
    for row, time in reversed(rows):
        step = integer(row.get("step"))
        if step is None or step < undone:
            kept.append((row, time))
        if step is not None and _is_of_a_step(row):
            undone = min(undone, step)
    return kept[::-1]


def _is_of_a_step(row: Object) -> bool:
    return "loss" in row or "secondsPerStep" in row


def unseen(rows: Iterable[tuple[Object, str]]) -> tuple[UnseenLoss, ...]:
    """Of those that timed() gives, by step, at most MOST_UNSEEN; of a step that was evaluated again, the last."""
    found: dict[tuple[int, str], UnseenLoss] = {}
    for row, time in rows:
        step, losses = integer(row.get("step")), row.get("evaluationLoss")
        for name, told in losses.items() if isinstance(losses, dict) and step is not None else ():
            if (loss := number(told)) is not None and step is not None:
                attempt = integer(row.get("attempt"))
                known = UnseenLoss(data_set=text(name, 253), step=step, loss=loss, attempt=attempt, time=time)
                found[step, known.data_set] = known
    return tuple(found[key] for key in sorted(found))[-MOST_UNSEEN:]


def curve(rows: Iterable[tuple[Object, str]]) -> tuple[Point, ...]:
    """Of those that timed() gives, which come in the order of their steps."""
    points = [
        _point(step, row, time)
        for row, time in rows
        if (step := integer(row.get("step"))) is not None and _is_of_a_step(row)
    ]
    return tuple(thinned(points, MOST))


def _known(lines: Lines, attempts: Sequence[Attempt]) -> Known:
    """Steps whose time the history or the status tells: the first of each attempt, and those that were saved."""
    found: dict[int, dict[int, datetime]] = {}
    for line in lines.all:
        step, time = integer(part(line, "data").get("step")), parsed(text(line.get("time"), 40))
        attempt = integer(line.get("attempt"))
        if line.get("type") == "Checkpoint" and attempt is not None and step is not None and time:
            found.setdefault(attempt, {})[step] = time
    for one in attempts:
        if time := parsed(one.first_step_time):
            found.setdefault(one.number, {})[(one.resumed_from_step or 0) + 1] = time
    return found


def _times(rows: Iterable[Object], known: Known) -> list[str]:
    """When each row was written. Where it does not say: from a step whose time is known on, by what each one took."""
    found = []
    attempt, clock = None, None
    for row in rows:
        if row.get("attempt") != attempt:
            attempt, clock = row.get("attempt"), None
        seconds = number(row.get("secondsPerStep"))
        pictures = row.get("validation")
        if seconds is None and isinstance(pictures, dict):
            seconds = number(pictures.get("seconds"))
        if told := parsed(text(row.get("time"), 40)):
            clock = told
        elif clock is not None:
            clock = _later(clock, seconds or 0.0)
        elif (step := integer(row.get("step"))) is not None and seconds is not None:
            clock = known.get(integer(attempt) or 0, {}).get(step)
        found.append(written(clock) if clock else "")
    return found


def _later(time: datetime, seconds: float) -> datetime | None:
    """None where a file says more seconds than a calendar has."""
    try:
        return time + timedelta(seconds=max(seconds, 0.0))
    except OverflowError:
        return None


def _point(step: int, row: Object, time: str) -> Point:
    return Point(
        step=step,
        loss=number(row.get("loss")),
        seconds_per_step=number(row.get("secondsPerStep")),
        attempt=integer(row.get("attempt")),
        time=time,
    )


def thinned(rows: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spread, with the first and the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]
