"""The curve: loss and seconds per step, evenly thinned out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from oarlock.facts.model import Facts, Object
from oarlock.story import Point
from oarlock_api.contract.wire import integer, number, text

MOST = 512
"""Points: as many as a picture of a page's width shows."""
T = TypeVar("T")


def curve(facts: Facts) -> tuple[Point, ...]:
    """From metrics.jsonl where the output was read, else from the status. A step that was done again counts once, as last."""
    rows: Sequence[Object] = facts.output.metrics if facts.output else ()
    if not rows:
        rows = ((facts.job or {}).get("status") or {}).get("curve") or ()
    points = {step: _point(step, row) for row in rows if (step := integer(row.get("step"))) is not None}
    return tuple(thinned([points[step] for step in sorted(points)], MOST))


def _point(step: int, row: Object) -> Point:
    return Point(
        step=step,
        loss=number(row.get("loss")),
        seconds_per_step=number(row.get("secondsPerStep")),
        attempt=integer(row.get("attempt")),
        time=text(row.get("time"), 40),
    )


def thinned(rows: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spread, with the first and the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]
