"""Loss and seconds per step, over steps or over wall time. A table of some of the points stands behind them.

Lines are drawn in a space of their own that is stretched to the width there is; text and marks are not stretched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from oarlock.explain.curve import thinned
from oarlock.report.markup import Child, Html, element, joined
from oarlock.report.parts import at, filled, row, table
from oarlock.report.scale import Scale, marks, share, time_marks, words_of
from oarlock.report.words import figure, instant, when, whole
from oarlock.story import Point

HEIGHT = 220
_TOP, _BOTTOM = 14, 190
_WIDE = 1000
"""Units of the stretched space; its heights are pixels."""
MOST_TOLD = 128
"""Points that say their figures under the pointer."""
MOST_ROWS = 32
_SMOOTHED_FROM = 64
"""Points; with fewer of them a mean over neighbours would hide more than it shows."""
_FAR = 3.0
"""Times the 98th percentile: values beyond it, such as a first step that compiles, would flatten all others."""
Read = Callable[[Point], float | None]


class Axis(StrEnum):
    """What a curve runs over; its value stands in the page's address."""

    STEPS = "steps"
    TIME = "time"


Turn = Callable[[Axis], str]
"""The address at which the curves run over that."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What a chart shows. `style` is its class, `read` finds it in a point."""

    name: str
    unit: str
    style: str
    read: Read


_FIGURES = (
    Figure("Loss", "", "loss", lambda point: point.loss),
    Figure("Seconds per step", "s", "pace", lambda point: point.seconds_per_step),
)


def curves(points: Sequence[Point], *, axis: Axis = Axis.STEPS, turn: Turn | None = None) -> Html:
    """The section; what is not known is said in it.

    Without `turn` it holds both axes and a switch between them, and says its figures without a script. With it, it holds one
    axis, and its figures as JSON for a script: a third of the size, for pages that are sent again and again.
    """
    heading = element("h2", "Curve", id="curve")
    drawn = [one for one in _FIGURES if any(one.read(point) is not None for point in points)]
    if not drawn:
        return element("section", heading, element("p", "No step is known.", class_="dim"), aria_labelledby="curve")
    timed = [point for point in points if instant(point.time) is not None]
    if turn and len(timed) >= 2:
        over_time = axis is Axis.TIME
        shown = joined(*(chart(one, timed if over_time else points, over_time=over_time, read=True) for one in drawn))
        return element("section", heading, _turns(axis, turn), shown, _table(points), aria_labelledby="curve")
    by_step = element("div", *(chart(one, points, over_time=False) for one in drawn), class_="by-step")
    if len(timed) < 2:
        return element("section", heading, by_step, _table(points), aria_labelledby="curve")
    by_time = element("div", *(chart(one, timed, over_time=True) for one in drawn), class_="by-time")
    choice = joined(
        element("input", type="radio", name="axis", id="over-steps", checked=True),
        element("label", "over steps", for_="over-steps"),
        element("input", type="radio", name="axis", id="over-time"),
        element("label", "over time (UTC)", for_="over-time"),
    )
    return element("section", heading, choice, by_step, by_time, _table(points), aria_labelledby="curve")


def _turns(axis: Axis, turn: Turn) -> Html:
    names = ((Axis.STEPS, "over steps"), (Axis.TIME, "over time (UTC)"))
    links = (element("a", words, href=turn(one), aria_current="true" if one is axis else None) for one, words in names)
    return element("p", *links, class_="way")


def chart(what: Figure, points: Sequence[Point], *, over_time: bool, read: bool = False) -> Html:
    """One figure over steps or over time; `read`: with its figures as JSON for a script. Empty where nobody knows it."""
    known = [
        (_x(point, over_time=over_time), value, point) for point in points if (value := what.read(point)) is not None
    ]
    if not known:
        return Html()
    known.sort(key=lambda one: one[0])
    values = [value for _, value, _ in known]
    low, high = _range(values)
    beyond = sum(value > high for value in values)
    x = Scale(known[0][0], known[-1][0], 0, 100)
    y = Scale(low, high, _BOTTOM, _TOP)
    smooth = _smoothed([min(value, high) for value in values]) if len(values) >= _SMOOTHED_FROM else None
    over = "time" if over_time else "steps"
    said = (
        f"{what.name} over {over}: from {figure(values[0], what.unit)} at step {whole(known[0][2].step)} "
        f"to {figure(values[-1], what.unit)} at step {whole(known[-1][2].step)}; "
        f"least {figure(min(values), what.unit)}, most {figure(max(values), what.unit)}"
    )
    lines = element(
        "svg",
        element("path", d=_path(known, values, x, y), class_=f"line {what.style}{' faint' if smooth else ''}"),
        element("path", d=_path(known, smooth, x, y), class_=f"line {what.style}") if smooth else None,
        viewBox=f"0 0 {_WIDE} {HEIGHT}",
        preserveAspectRatio="none",
        height=HEIGHT,
    )
    drawing = element(
        "svg",
        *_axes(x, y, over_time=over_time),
        *_attempts(known, x),
        lines,
        *(_beyond(x(place), what) for place, value, _ in known if value > high),
        *(() if read else _told(known, what, x, y)),
        height=HEIGHT,
        role="img",
        aria_label=said,
        data_points=_as_json(known, what, x, y) if read else None,
    )
    unit = f" ({what.unit})" if what.unit else ""
    notes = [f"the strong line is the mean of {_window(len(values))} neighbours"] if smooth else []
    notes += [f"{beyond:,} above {figure(high, what.unit)} are marked at the edge"] if beyond else []
    caption = element(
        "figcaption", f"{what.name}{unit}", element("span", "; ".join(notes), class_="dim") if notes else None
    )
    return element("figure", caption, element("div", drawing, class_="drawing"), class_="chart")


def _beyond(place: float, what: Figure) -> Html:
    return element("svg", element("path", d="M0 0l4 7h-8z", class_=f"beyond {what.style}"), x=share(place), y=_TOP - 8)


def _x(point: Point, *, over_time: bool) -> float:
    return (instant(point.time) or 0.0) if over_time else float(point.step)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """What is drawn of them: all, but for the few that lie far above the others."""
    low, high = min(values), max(values)
    usual = sorted(values)[int(0.98 * (len(values) - 1))]
    if 0 < _FAR * usual < high:
        high = _FAR * usual
    low = 0.0 if 0 <= low < high / 2 else low
    return (low, high) if high > low else (low - abs(low) * 0.1 - 1e-9, high + abs(high) * 0.1 + 1e-9)


def _window(count: int) -> int:
    return count // 32 | 1


def _smoothed(values: Sequence[float]) -> list[float]:
    """The mean of each value's neighbourhood; at the ends of what there is of it."""
    half = _window(len(values)) // 2
    near = [values[max(0, place - half) : place + half + 1] for place in range(len(values))]
    return [sum(one) / len(one) for one in near]


def _path(known: Sequence[tuple[float, float, Point]], values: Sequence[float], x: Scale, y: Scale) -> str:
    """A line through all points of an attempt; none from one attempt to the next."""
    parts = []
    attempt: int | None = -1
    for (along, _, point), value in zip(known, values, strict=True):
        begins = point.attempt != attempt
        attempt = point.attempt
        place = f"{x(along) * _WIDE / 100:.0f} {y(value):.1f}"
        parts.append(f"M{place}L{place}" if begins else f"L{place}")
    return "".join(parts)


def _axes(x: Scale, y: Scale, *, over_time: bool) -> Iterator[Html]:
    rows = marks(y.low, y.high, 5)
    for value, words in zip(rows, words_of(rows), strict=True):
        height = y(value)
        yield element("line", x1="0", x2="100%", y1=height, y2=height, class_="grid")
        yield element("text", words, x=-8, y=height + 4, class_="tick end")
    if over_time:
        columns = time_marks(x.low, x.high, 8)
    else:
        columns = [(value, f"{value:,.0f}") for value in marks(x.low, x.high, 8) if value == round(value)]
    for place, (value, words) in enumerate(columns):
        style = "tick mid spare" if place % 2 else "tick mid"
        yield element("text", words, x=share(x(value)), y=_BOTTOM + 18, class_=style)


def _attempts(known: Sequence[tuple[float, float, Point]], x: Scale) -> Iterator[Html]:
    """A line where another attempt begins: one for each, also where steps that were done again lie between each other."""
    newest = known[0][2].attempt or 0
    for place, _, point in known:
        if (point.attempt or 0) > newest > 0:
            told = element("title", f"attempt {point.attempt} from step {whole(point.step)}")
            there = share(x(place))
            yield element("line", told, x1=there, x2=there, y1=_TOP, y2=_BOTTOM, class_="attempt")
        newest = max(newest, point.attempt or 0)


def _told(known: Sequence[tuple[float, float, Point]], what: Figure, x: Scale, y: Scale) -> Iterator[Html]:
    """Columns without colour that say the figures of the point under the pointer, and show where it is."""
    some = thinned(known, MOST_TOLD)
    wide = 100 / len(some)
    for place, value, point in some:
        told = element("title", _words(value, point, what))
        there = x(place)
        column = element("rect", x=share(there - wide / 2), y=_TOP, width=share(wide), height=_BOTTOM - _TOP)
        dot = element("circle", cx=share(there), cy=y(value), r=4, class_=f"dot {what.style}")
        yield element("g", told, column, dot, class_="hit")


def _as_json(known: Sequence[tuple[float, float, Point]], what: Figure, x: Scale, y: Scale) -> str:
    """[share of the width, height in pixels, words] of each point that can be read."""
    some = thinned(known, MOST_TOLD)
    told = [[round(x(place), 2), round(y(value), 1), _words(value, point, what)] for place, value, point in some]
    return json.dumps(told, separators=(",", ":"))


def _words(value: float, point: Point, what: Figure) -> str:
    time = f", {when(point.time)}" if point.time else ""
    return f"step {whole(point.step)}{time}: {figure(value, what.unit)}"


def _table(points: Sequence[Point]) -> Html:
    cells: list[list[Child]] = [
        [
            whole(point.step),
            at(point.time),
            whole(point.attempt),
            figure(point.loss),
            figure(point.seconds_per_step),
        ]
        for point in thinned(points, MOST_ROWS)
    ]
    names, cells = filled(("Step", "Time (UTC)", "Attempt", "Loss", "Seconds per step"), cells)
    rows = (row(names, each) for each in cells)
    return element("details", element("summary", "The curve as a table"), table(names, rows))
