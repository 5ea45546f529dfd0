"""What is drawn of one lane: its stages, its bars, its ranks, and the marks of faults, cordons and its end.

Places along the axis of time are shares of the width, so that a drawing fits a phone as well as a wall; heights are pixels.
What happened is a link to its row in the tables, so that the keyboard reaches each mark, and its words are read out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oarlock import in_words
from oarlock.report.lanes import STRIP, Lane
from oarlock.report.markup import Html, cut, element
from oarlock.report.scale import Scale, share
from oarlock.report.tables import MOST_ROUNDS
from oarlock.report.words import duration, instant, some, when
from oarlock.story import Cordon, Stage, Trouble

THINNEST = 0.15
"""Percent of the width: what is shorter is drawn so long."""
MOST_CORDONS = 8
_MOST_FAULTS = 4
"""That the words of one row name."""
_BEFORE = {"Detect", "Decide"}
"""Stages that belong to the end of the attempt before."""
_WAITS = {"Drain", "Cordon", "Queue", "Schedule", "Waiting"}
VICTIMS = {"PeerLost", "LeftOnRequest"}


def bars(lane: Lane, x: Scale, top: int) -> Iterator[Html]:
    """The stages on the way to the first step, how long it started and trained, and its ranks."""
    for stage, begin, end in stages(lane):
        told = element("title", f"{in_words.stage(stage.name)}: {duration(stage.seconds)}")
        wide = share(max(x(end) - x(begin), THINNEST / 2))
        yield element("rect", told, x=share(x(begin)), y=top, width=wide, height=STRIP - 2, class_=style_of(stage))
    rows, tall = top + STRIP, lane.rows * lane.height
    for begin, end, style in ((lane.begin, lane.first_step, "start"), (lane.first_step, lane.end, "train")):
        if end > begin or style == "start":
            wide = share(max(x(end) - x(begin), THINNEST))
            yield element("rect", x=share(x(begin)), y=rows, width=wide, height=tall, class_=style)
    for begin, end in between_rounds(lane):
        wide = share(max(x(end) - x(begin), THINNEST))
        yield element("rect", x=share(x(begin)), y=rows, width=wide, height=tall, class_="start")
    where = {place.rank: place.node for place in lane.attempt.places}
    wide = share(max(x(lane.end) - x(lane.begin), THINNEST))
    for row in range(lane.rows):
        told = element("title", _about(lane, row, where))
        at = rows + row * lane.height
        yield element("rect", told, x=share(x(lane.begin)), y=at, width=wide, height=lane.height, class_="rank")


def between_rounds(lane: Lane) -> Iterator[tuple[float, float]]:
    """From when to when it did not train, after a round's end: until now where the next one has made no step yet."""
    newest = lane.attempt.rounds[-MOST_ROUNDS:]
    for one in newest:
        found = instant(one.fault.time)
        if found is None or (one.down_seconds is None and (one is not newest[-1] or not lane.open)):
            continue
        begin = found - (one.silent_seconds or 0.0)
        end = lane.end if one.down_seconds is None else begin + one.down_seconds
        yield max(begin, lane.begin), min(max(end, lane.begin), lane.end)


def stages(lane: Lane) -> list[tuple[Stage, float, float]]:
    """Those of its own start, from when to when they lasted."""
    at, found = lane.begin, []
    for stage in lane.attempt.stages:
        if stage.name in _BEFORE or at >= lane.first_step:
            continue
        until = min(at + max(stage.seconds, 0.0), lane.end)
        found.append((stage, at, until))
        at = until
    return found


def style_of(stage: Stage) -> str:
    """Whether it waits for others or does something."""
    return "wait" if stage.name in _WAITS else "stage"


def happenings(lane: Lane, x: Scale, top: int, cordons: Sequence[Cordon]) -> Iterator[Html]:
    """The marks: who fell first, who only lost a peer, whose fault ended rounds, cordoned nodes, and what was decided."""
    rows, number = top + STRIP, lane.attempt.number
    by_row: dict[int, list[Trouble]] = {}
    for fault in lane.attempt.faults:
        by_row.setdefault(lane.row_of(fault.rank), []).append(fault)
    for row, faults in by_row.items():
        yield _fault(faults, x, rows + (row + 0.5) * lane.height, lane, to=f"fault-{number}")
    for one in lane.attempt.rounds[-MOST_ROUNDS:]:
        middle = rows + (lane.row_of(one.fault.rank) + 0.5) * lane.height
        yield _fault([one.fault], x, middle, lane, to=f"round-{number}-{one.number}")
    for cordon in cordons[:MOST_CORDONS]:
        where = {fault.node: fault.rank for fault in lane.attempt.faults}
        where |= {place.node: place.rank for place in lane.attempt.places}
        time = cordon.done_time or cordon.time
        words = cut(f"{when(time)} {cordon.node} cordoned: {cordon.reason}", 600)
        middle = rows + (lane.row_of(where.get(cordon.node)) + 0.5) * lane.height
        yield _mark(
            x(instant(time) or lane.end), middle, "M7 -5h4v10h-4z", style="cordon", words=words, to=f"cordon-{number}"
        )
    ended = lane.attempt
    if ended.decision or ended.end_reason:
        told = f"{when(ended.end_time)} attempt {number} ended, {ended.end_reason}: {ended.decision}"
        words = cut(told.rstrip(", :"), 600)
        yield _mark(
            x(lane.end), top + STRIP / 2, "M0 -5l5 5l-5 5l-5 -5z", style="decision", words=words, to=f"attempt-{number}"
        )


def _about(lane: Lane, row: int, where: Mapping[int, str]) -> str:
    ranks = lane.ranks_of(row)
    nodes = list(dict.fromkeys(node for rank in ranks if (node := where.get(rank))))
    left = {one.fault.node for one in lane.attempt.rounds if one.replaced and one.fault.rank in ranks} - {"", *nodes}
    name = f"pod {ranks[0]}" if len(ranks) == 1 else f"pods {ranks[0]} to {ranks[-1]}"
    on = f" on {some(nodes, 4)}" if nodes else ""
    on += f", before on {some(sorted(left), 4)}" if left else ""
    return f"attempt {lane.attempt.number}, {name}{on}, {duration(lane.end - lane.begin)}"


def _fault(faults: Sequence[Trouble], x: Scale, middle: float, lane: Lane, *, to: str) -> Html:
    """One mark for a row: of its root cause where it has one. Who only lost a peer is no stop of the keyboard's."""
    cause = next((one for one in faults if one.cause not in VICTIMS), faults[0])
    time = instant(cause.time)
    ordered = [cause, *(one for one in faults if one is not cause)]
    lines = list(dict.fromkeys(f"{when(one.time)} {one.cause}: {cut(one.message, 200)}" for one in ordered))
    more = [f"and {len(lines) - _MOST_FAULTS:,} more"] if len(lines) > _MOST_FAULTS else []
    words = "\n".join([*lines[:_MOST_FAULTS], *more])
    at = x(min(max(time if time is not None else lane.end, lane.begin), lane.end))
    if cause.cause in VICTIMS:
        return element("circle", element("title", words), cx=share(at), cy=middle, r=3, class_="victim")
    circle = element("circle", element("title", words), cx=share(at), cy=middle, r=5, class_="fault")
    return element("a", circle, href=f"#{to}", aria_label=words)


def _mark(at: float, middle: float, path: str, *, style: str, words: str, to: str) -> Html:
    drawn = element("path", element("title", words), d=path, class_=style)
    return element("a", element("svg", drawn, x=share(at), y=middle), href=f"#{to}", aria_label=words)
