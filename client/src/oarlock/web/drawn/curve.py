"""The curve of a job, close up: all steps that its agent still has one by one, before them those of its status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

from oarlock.explain.curve import thinned
from oarlock.report.curves import Axis, curves
from oarlock.report.markup import element, joined, with_code
from oarlock.report.words import whole
from oarlock.story import Point
from oarlock.web.ask import Region, View
from oarlock_api.contract.reads import StepFigures

LAST = (0, 500, 100)
"""So many of the last steps can be shown alone; 0: all."""
MOST_POINTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What it runs over, and how many of the last steps are shown."""

    namespace: str
    job: str
    axis: Axis = Axis.STEPS
    last: int = 0

    def address(self) -> str:
        """Where it is shown."""
        given = {"axis": self.axis if self.axis is not Axis.STEPS else "", "last": self.last or ""}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/jobs/{quote(self.namespace)}/{quote(self.job)}/curve{'?' if query else ''}{query}"


def with_live(before: Sequence[Point], attempt: int, steps: Sequence[StepFigures]) -> tuple[Point, ...]:
    """What was known, up to where the steps that an agent tells begin; then those."""
    live = [
        Point(
            step=one.figures.step,
            loss=one.figures.loss,
            seconds_per_step=one.figures.seconds_per_step,
            attempt=attempt,
            time=one.time,
        )
        for one in steps
        if one.figures.step is not None
    ]
    if not live:
        return tuple(before)
    return (*(point for point in before if point.step < live[0].step), *live)


def curve(choice: Choice, points: Sequence[Point], words: str = "") -> View:
    """The whole view. `words`: why there are no more points."""
    if choice.last and points:
        points = [point for point in points if point.step > points[-1].step - choice.last]
    shown = thinned(points, MOST_POINTS)
    count = f"{len(shown):,} of {len(points):,} steps that are known" if len(shown) < len(points) else ""
    known = f"{len(points):,} steps, the newest is " if len(points) > 1 else "One step, "
    told = count or (f"{known}{whole(points[-1].step)}" if points else "")
    said = element("p", f"{told}. " if told else None, with_code(words), class_="dim")

    def turned(axis: Axis) -> str:
        return replace(choice, axis=axis).address()

    drawn = element("div", said, curves(shown, axis=choice.axis, turn=turned), id="curve-drawn")
    region = Region("curve-live", {"curve-drawn": drawn})
    names = {0: "All steps", **{last: f"The last {last}" for last in LAST if last}}
    ways = [
        element(
            "a",
            names[last],
            href=replace(choice, last=last).address(),
            aria_current="true" if last == choice.last else None,
        )
        for last in LAST
    ]
    where = f"/jobs/{quote(choice.namespace)}/{quote(choice.job)}"
    head = element("h1", "Curve of ", element("a", choice.job, href=where))
    nav = element("nav", *ways, aria_label="Steps", class_="way")
    return View(title=f"Curve of {choice.job}", body=joined(head, nav, region.html()), regions=(region,))
