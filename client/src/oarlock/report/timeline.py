"""Attempts x pods over time: how each began, how long it trained, which pods met a fault, what was decided and cordoned.

A lane for each attempt, in it a row for each pod; where there are many pods, a row is several of them. So a gang of 1,000
pods with 20 attempts is a few hundred elements. One attempt can be shown alone, with more rows and with its start in full
width. The tables below have the same in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from oarlock import in_words
from oarlock.report.lane_marks import bars, happenings, stages, style_of
from oarlock.report.lanes import GAP, STRIP, Lane, lanes, span
from oarlock.report.links import Links
from oarlock.report.markup import Html, element, joined
from oarlock.report.scale import Scale, share, time_marks
from oarlock.report.words import duration, when, whole
from oarlock.story import Story

_TOP = 26
_START = 18
"""Height of the stages of a start that is shown alone."""
_LABEL_EVERY = 24
"""Pixels between two ranks that are named."""
Zoom = Callable[[int | None], str]
"""The address at which one attempt is shown alone; None: all of them."""


def timeline(story: Story, *, only: int | None = None, zoom: Zoom | None = None, links: Links | None = None) -> Html:
    """The section; what is not known is said in it. `only`: that attempt alone."""
    heading = element("h2", "Timeline", id="timeline")
    shown = lanes(story, only=only)
    if not shown:
        words = (
            f"Attempt {whole(only)} is not known." if only is not None and story.attempts else "No attempt is known."
        )
        back = element("p", element("a", "All attempts", href=zoom(None))) if zoom and only is not None else None
        return element("section", heading, element("p", words, class_="dim"), back, aria_labelledby="timeline")
    left_out = len(story.attempts) - len(shown)
    return element(
        "section",
        heading,
        _way(shown[0], story, zoom) if only is not None and zoom else None,
        _start(shown[0]) if only is not None else None,
        _drawing(shown, story, only=only is not None, zoom=zoom),
        _legend(shown, links or Links()),
        element("p", f"{left_out:,} earlier attempts are not drawn.", class_="dim")
        if left_out and only is None
        else None,
        aria_labelledby="timeline",
    )


def _drawing(shown: Sequence[Lane], story: Story, *, only: bool, zoom: Zoom | None) -> Html:
    low, high = span(shown)
    x = Scale(low, high, 0, 100)
    tall = _TOP + sum(lane.tall + GAP for lane in shown) - GAP
    drawn: list[Html] = list(_axis(low, high, x, tall))
    top = _TOP
    for lane in shown:
        drawn.extend(bars(lane, x, top))
        drawn.extend(_names(lane, top, only=only, zoom=zoom))
        drawn.extend(happenings(lane, x, top, [one for one in story.cordons if one.attempt == lane.attempt.number]))
        top += lane.tall + GAP
    if shown[-1].open:
        told = element("title", f"now: {when(story.time)}")
        drawn.append(element("line", told, x1="100%", x2="100%", y1=_TOP, y2=tall, class_="now"))
    what = f"attempt {shown[0].attempt.number}" if only else f"{len(shown)} attempts"
    said = f"{what} from {when(shown[0].attempt.start_time)} on; the tables below say the same in words"
    return element("div", element("svg", *drawn, height=tall, role="group", aria_label=said), class_="drawing")


def _axis(low: float, high: float, x: Scale, tall: int) -> Iterator[Html]:
    for place, (value, words) in enumerate(time_marks(low, high, 8)):
        at = share(x(value))
        yield element("line", x1=at, x2=at, y1=_TOP - 8, y2=tall, class_="grid")
        yield element("text", words, x=at, y=_TOP - 12, class_="tick mid" if place % 2 == 0 else "tick mid spare")


def _names(lane: Lane, top: int, *, only: bool, zoom: Zoom | None) -> Iterator[Html]:
    """The attempt's number, or the ranks' where there is room for them."""
    rows = top + STRIP
    if only:
        every = max(1, _LABEL_EVERY // lane.height)
        for row in range(0, lane.rows, every):
            middle = rows + (row + 0.5) * lane.height + 4
            yield element("text", whole(lane.ranks_of(row)[0]), x=-12, y=middle, class_="tick end")
        return
    number = lane.attempt.number
    name = element("text", str(number), x=-12, y=rows + lane.rows * lane.height / 2 + 4, class_="tick end")
    yield element("a", name, href=zoom(number), aria_label=f"show attempt {number} alone") if zoom else name


def _way(lane: Lane, story: Story, zoom: Zoom) -> Html:
    """Which attempt is shown, and the way to its neighbours and back."""
    number = lane.attempt.number
    known = [one.number for one in story.attempts]
    links = [element("a", "All attempts", href=zoom(None))]
    links += [element("a", f"Attempt {one}", href=zoom(one)) for one in known if abs(one - number) == 1]
    told = f"Attempt {number}, {duration(lane.end - lane.begin)}{' so far' if lane.open else ''}"
    return element("p", element("strong", told), *links, class_="way")


def _start(lane: Lane) -> Html | None:
    """The stages of its start in full width: beside days of training nobody would see them."""
    found = stages(lane)
    if not found or lane.first_step <= lane.begin:
        return None
    x = Scale(found[0][1], max(found[-1][2], found[0][1] + 1e-3), 0, 100)
    drawn = [
        element(
            "svg",
            element("title", f"{in_words.stage(stage.name)}: {duration(stage.seconds)}"),
            element("rect", width="100%", height=_START, class_=style_of(stage)),
            element("text", f"{in_words.stage(stage.name)} {duration(stage.seconds)}", x=5, y=13, class_="tick on"),
            x=share(x(begin)),
            width=share(max(x(end) - x(begin), 0.2)),
            height=_START,
            class_="clip",
        )
        for stage, begin, end in found
    ]
    words = "; ".join(f"{in_words.stage(stage.name)} {duration(stage.seconds)}" for stage, _, _ in found)
    took = duration(sum(stage.seconds for stage, _, _ in found))
    return joined(
        element("h3", f"Its start: {took}"),
        element("p", words, class_="dim"),
        element("div", element("svg", *drawn, height=_START, role="img", aria_label=words), class_="drawing"),
        element("h3", "Its pods"),
    )


def _legend(shown: Sequence[Lane], links: Links) -> Html:
    names = (
        ("wait", "waits for a place"), ("stage", links.word("stage", "stages of the start")),
        ("start", "before the first step, and between rounds"),
        ("train", "trains"), ("fault", "fault"), ("victim", links.word("victim", "lost a peer, or left when told")),
        ("decision", "end and decision"), ("cordon", links.word("cordon", "node cordoned")),
    )  # fmt: skip
    keys = [
        element("li", element("svg", _key(style), viewBox="0 0 12 12", class_="key", aria_hidden="true"), words)
        for style, words in names
    ]
    group = max(lane.group for lane in shown)
    if group > 1:
        keys.append(element("li", f"a row is up to {group:,} ", links.word("pod 3", "pods")))
    return element("ul", *keys, class_="legend")


def _key(style: str) -> Html:
    if style in ("fault", "victim"):
        return element("circle", cx=6, cy=6, r=5 if style == "fault" else 3, class_=style)
    if style in ("decision", "cordon"):
        return element("path", d="M6 1l5 5l-5 5l-5 -5z" if style == "decision" else "M3 1h4v10h-4z", class_=style)
    return element("rect", x=1, y=1, width=10, height=10, rx=2, class_=style)
