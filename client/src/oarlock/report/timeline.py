"""Attempts x ranks over time: how each began, how long it trained, which ranks met a fault, what was decided and cordoned.

A lane for each attempt, in it a row for each rank; where there are many ranks, a row is several of them. So a gang of 1,000
ranks with 20 attempts is a few hundred elements. The tables below have the same in words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from oarlock.explain.gone import PHASE
from oarlock.report.markup import Html, cut, element
from oarlock.report.scale import Scale, time_marks
from oarlock.report.words import duration, instant, some, when
from oarlock.story import Attempt, Cordon, Story, Trouble

WIDTH = 960
_LEFT, _RIGHT, _TOP = 64, 948, 26
_STRIP, _GAP = 6, 12
MOST_LANES = 24
MOST_ROWS = 16
"""Of a lane; with more than _FEW lanes half of them."""
_FEW = 8
_MOST_FAULTS = 4
"""That the tooltip of one row names."""
_BEFORE = {"Detect", "Decide"}
"""Stages that belong to the end of the attempt before."""
_WAITS = {"Drain", "Cordon", "Queue", "Schedule", "Waiting"}
_VICTIMS = {"PeerLost", "LeftOnRequest"}


@dataclass(frozen=True, slots=True)
class _Lane:
    """An attempt between two times, and its ranks, `group` of them in a row of `height`."""

    attempt: Attempt
    begin: float
    end: float
    ranks: tuple[int, ...]
    group: int
    height: int

    @property
    def rows(self) -> int:
        return -(-len(self.ranks) // self.group)

    @property
    def tall(self) -> int:
        return _STRIP + self.rows * self.height

    def row_of(self, rank: int | None) -> int:
        return min(bisect_left(self.ranks, rank or 0) // self.group, self.rows - 1)


def timeline(story: Story) -> Html:
    """The section; what is not known is said in it."""
    heading = element("h2", "Timeline", id="timeline")
    shown = [one for one in story.attempts if instant(one.start_time) is not None][-MOST_LANES:]
    if not shown:
        return element(
            "section", heading, element("p", "No attempt is known.", class_="dim"), aria_labelledby="timeline"
        )
    lanes = _lanes(shown, story)
    times = [time for lane in lanes for time in (lane.begin, lane.end)]
    x = Scale(min(times), max(*times, min(times) + 1), _LEFT, _RIGHT)
    tall = _TOP + sum(lane.tall + _GAP for lane in lanes)
    drawn: list[Html] = [*_axis(x, tall)]
    top = _TOP
    for lane in lanes:
        drawn.extend(_lane(lane, x, top, [one for one in story.cordons if one.attempt == lane.attempt.number]))
        top += lane.tall + _GAP
    picture = element(
        "svg",
        *drawn,
        viewBox=f"0 0 {WIDTH} {tall}",
        role="img",
        aria_label=f"{len(lanes)} attempts from {when(shown[0].start_time)} on; the table of attempts says the same in words",
    )
    left_out = len(story.attempts) - len(shown)
    words = [element("p", f"{left_out:,} earlier attempts are not drawn.", class_="dim")] if left_out else []
    return element(
        "section",
        heading,
        element("div", picture, class_="wide", tabindex="0"),
        _legend(lanes),
        *words,
        aria_labelledby="timeline",
    )


def _lanes(shown: Sequence[Attempt], story: Story) -> list[_Lane]:
    found = []
    for place, one in enumerate(shown):
        begin = instant(one.start_time) or 0.0
        after = instant(shown[place + 1].start_time if place + 1 < len(shown) else story.time) or begin
        heard = _heard(one, story) if story.now.phase == PHASE else after
        end = instant(one.end_time) or min(heard, after)
        ranks = {each.rank for each in one.places} or set(range(len(one.node_names)))
        ranks |= {fault.rank for fault in one.faults if fault.rank is not None}
        most = MOST_ROWS if len(shown) <= _FEW else MOST_ROWS // 2
        group = max(1, -(-len(ranks) // most))
        height = 14 if len(ranks) <= _FEW // 2 else 8 if len(ranks) <= _FEW else 5
        found.append(_Lane(one, begin, max(end, begin), tuple(sorted(ranks)) or (0,), group, height))
    return found


def _heard(one: Attempt, story: Story) -> float:
    """When an attempt of which nobody tells the end was heard of last; 0 for never."""
    times = [one.start_time, one.first_step_time, *(fault.time for fault in one.faults)]
    times += [point.time for point in story.curve if point.attempt == one.number]
    times += [moment.time for moment in story.chain if moment.attempt == one.number]
    return max(instant(time) or 0.0 for time in times)


def _axis(x: Scale, tall: int) -> Iterator[Html]:
    for value, words in time_marks(x.low, x.high, 8):
        at = x(value)
        yield element("line", x1=at, x2=at, y1=_TOP - 8, y2=tall, class_="grid")
        yield element("text", words, x=at, y=_TOP - 12, class_="tick mid")


def _lane(lane: _Lane, x: Scale, top: int, cordons: Sequence[Cordon]) -> Iterator[Html]:
    one = lane.attempt
    first, rows = instant(one.first_step_time), top + _STRIP
    yield element("text", str(one.number), x=_LEFT - 12, y=rows + lane.rows * lane.height / 2 + 4, class_="tick end")
    if not one.first_step_time and one.resumed_from_step is None and one.last_step is None:
        first = lane.end  # no step was made
    elif first is None:
        first = lane.begin  # nobody says when
    yield from _strip(lane, x, top, first)
    yield _bar(lane, x, rows, span=(lane.begin, min(first, lane.end)), style="start")
    if lane.end > first:
        yield _bar(lane, x, rows, span=(first, lane.end), style="train")
    where = {place.rank: place.node for place in one.places}
    for row in range(lane.rows):
        yield _row(lane, x, rows, row, where)
    for row, faults in _by_row(one.faults, lane).items():
        yield _fault(faults, x, rows + (row + 0.5) * lane.height, lane)
    for cordon in cordons[:MOST_ROWS]:
        yield _cordon(cordon, x, rows, lane)
    if one.decision or one.end_reason:
        at, middle = x(lane.end), top + _STRIP / 2
        told = element("title", cut(f"{when(one.end_time)} {one.end_reason}: {one.decision}".rstrip(": "), 600))
        yield element("path", told, d=f"M{at:.1f} {middle - 5:.1f}l5 5l-5 5l-5 -5z", class_="decision")


def _bar(lane: _Lane, x: Scale, top: int, *, span: tuple[float, float], style: str) -> Html:
    begin, end = x(span[0]), x(span[1])
    return element("rect", x=begin, y=top, width=max(end - begin, 1.5), height=lane.rows * lane.height, class_=style)


def _strip(lane: _Lane, x: Scale, top: int, first: float) -> Iterator[Html]:
    """The stages on the way to the first step, each as long as it was."""
    at = lane.begin
    for stage in lane.attempt.stages:
        until = min(at + max(stage.seconds, 0.0), lane.end)
        if stage.name in _BEFORE or at >= first:
            continue
        told = element("title", f"{stage.name}: {duration(stage.seconds)}")
        style = "wait" if stage.name in _WAITS else "stage"
        yield element("rect", told, x=x(at), y=top, width=max(x(until) - x(at), 0.5), height=_STRIP - 2, class_=style)
        at = until


def _row(lane: _Lane, x: Scale, top: int, row: int, where: Mapping[int, str]) -> Html:
    ranks = lane.ranks[row * lane.group : (row + 1) * lane.group]
    nodes = list(dict.fromkeys(node for rank in ranks if (node := where.get(rank))))
    name = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    on = f" on {some(nodes, 4)}" if nodes else ""
    told = element("title", f"attempt {lane.attempt.number}, {name}{on}, {duration(lane.end - lane.begin)}")
    wide = max(x(lane.end) - x(lane.begin), 1.5)
    return element(
        "rect", told, x=x(lane.begin), y=top + row * lane.height, width=wide, height=lane.height, class_="rank"
    )


def _by_row(faults: Sequence[Trouble], lane: _Lane) -> dict[int, list[Trouble]]:
    found: dict[int, list[Trouble]] = {}
    for fault in faults:
        found.setdefault(lane.row_of(fault.rank), []).append(fault)
    return found


def _fault(faults: Sequence[Trouble], x: Scale, middle: float, lane: _Lane) -> Html:
    """One mark for a row: of its root cause where it has one."""
    cause = next((one for one in faults if one.cause not in _VICTIMS), faults[0])
    time = instant(cause.time)
    ordered = [cause, *(one for one in faults if one is not cause)]
    lines = list(dict.fromkeys(f"{when(one.time)} {one.cause}: {cut(one.message, 200)}" for one in ordered))
    more = [f"and {len(lines) - _MOST_FAULTS:,} more"] if len(lines) > _MOST_FAULTS else []
    told = element("title", "\n".join([*lines[:_MOST_FAULTS], *more]))
    style = "victim" if cause.cause in _VICTIMS else "fault"
    at = min(max(time if time is not None else lane.end, lane.begin), lane.end)
    return element("circle", told, cx=x(at), cy=middle, r=3.0 if style == "victim" else 5.0, class_=style)


def _cordon(cordon: Cordon, x: Scale, top: int, lane: _Lane) -> Html:
    rank = next((one.rank for one in lane.attempt.places if one.node == cordon.node), None)
    at = x(instant(cordon.done_time or cordon.time) or lane.end)
    middle = top + (lane.row_of(rank) + 0.5) * lane.height
    told = element(
        "title", cut(f"{when(cordon.done_time or cordon.time)} {cordon.node} cordoned: {cordon.reason}", 600)
    )
    return element("path", told, d=f"M{at + 7:.1f} {middle - 5:.1f}h4v10h-4z", class_="cordon")


def _legend(lanes: Sequence[_Lane]) -> Html:
    names = (
        ("wait", "waits for a place"), ("stage", "stages of the start"), ("start", "before the first step"),
        ("train", "trains"), ("fault", "fault"), ("victim", "lost a peer, or left when told"),
        ("decision", "end and decision"), ("cordon", "node cordoned"),
    )  # fmt: skip
    keys = [
        element("li", element("svg", _key(style), viewBox="0 0 12 12", class_="key", aria_hidden="true"), words)
        for style, words in names
    ]
    group = max(lane.group for lane in lanes)
    if group > 1:
        keys.append(element("li", f"a row is up to {group:,} ranks"))
    return element("ul", *keys, class_="legend")


def _key(style: str) -> Html:
    if style in ("fault", "victim"):
        return element("circle", cx=6, cy=6, r=5 if style == "fault" else 3, class_=style)
    if style in ("decision", "cordon"):
        return element("path", d="M6 1l5 5l-5 5l-5 -5z" if style == "decision" else "M3 1h4v10h-4z", class_=style)
    return element("rect", x=1, y=1, width=10, height=10, rx=2, class_=style)
