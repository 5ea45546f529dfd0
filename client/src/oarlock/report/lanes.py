"""The lanes of a timeline: an attempt each, from when to when it lasted, and which of its ranks stand in which row. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from oarlock.explain.gone import PHASE
from oarlock.report.words import instant
from oarlock.story import Attempt, Story

MOST_LANES = 24
MOST_ROWS = 96
"""Of all lanes together; each has four at least, and sixteen at most."""
MOST_ROWS_OF_ONE = 64
"""Of an attempt that is shown alone."""
_OVER = (PHASE, "Succeeded", "Failed", "Suspended")
STRIP, GAP = 6, 10
"""Above the rows, where the stages of the start and its end are; and between two lanes."""


@dataclass(frozen=True, slots=True)
class Lane:
    """An attempt between two times, and its ranks, `group` of them in a row of `height`.

    `first_step` is when it began to train: `end` where it never did. `open`: it goes on.
    """

    attempt: Attempt
    begin: float
    first_step: float
    end: float
    open: bool
    ranks: tuple[int, ...]
    group: int
    height: int

    @property
    def rows(self) -> int:
        """How many."""
        return -(-len(self.ranks) // self.group)

    @property
    def tall(self) -> int:
        """Pixels, with what stands above the rows."""
        return STRIP + self.rows * self.height

    def ranks_of(self, row: int) -> tuple[int, ...]:
        """Those that share a row."""
        return self.ranks[row * self.group : (row + 1) * self.group]

    def row_of(self, rank: int | None) -> int:
        """Where a rank stands; the first where it is not known which."""
        return min(bisect_left(self.ranks, rank or 0) // self.group, self.rows - 1)


def lanes(story: Story, *, only: int | None = None) -> list[Lane]:
    """The newest attempts of which it is known when they began, or only that one."""
    known = [one for one in story.attempts if instant(one.start_time) is not None]
    shown = known[-MOST_LANES:] if only is None else [one for one in known if one.number == only]
    most = MOST_ROWS_OF_ONE if only is not None else min(16, max(4, MOST_ROWS // max(len(shown), 1)))
    after = {one.number: later.start_time for one, later in pairwise(known)}
    return [_lane(one, story, until=after.get(one.number, ""), most=most, beside=len(shown)) for one in shown]


def _lane(one: Attempt, story: Story, *, until: str, most: int, beside: int) -> Lane:
    begin = instant(one.start_time) or 0.0
    limit = instant(until or story.time) or begin
    heard = _heard(one, story) if story.now.phase == PHASE else limit
    end = max(instant(one.end_time) or min(heard, limit), begin)
    first = instant(one.first_step_time)
    if not one.first_step_time and one.resumed_from_step is None and one.last_step is None:
        first = end  # no step was made
    elif first is None:
        first = begin  # nobody says when
    goes_on = not (until or one.end_time or one.end_reason) and story.now.phase not in (
        PHASE,
        "Succeeded",
        "Failed",
        "Suspended",
    )
    ranks = {each.rank for each in one.places} or set(range(len(one.node_names)))
    ranks |= {fault.rank for fault in one.faults if fault.rank is not None}
    ranks |= {each.fault.rank for each in one.rounds if each.fault.rank is not None}
    rows = min(len(ranks), most)
    return Lane(
        attempt=one,
        begin=begin,
        first_step=min(max(first, begin), end),
        end=end,
        open=goes_on,
        ranks=tuple(sorted(ranks)) or (0,),
        group=max(1, -(-len(ranks) // most)),
        height=14 if rows * beside <= 24 else 8 if rows * beside <= 48 else 6,
    )


def _heard(one: Attempt, story: Story) -> float:
    """When an attempt of which nobody tells the end was heard of last; 0 for never."""
    times = [one.start_time, one.first_step_time, *(fault.time for fault in one.faults)]
    times += [point.time for point in story.curve if point.attempt == one.number]
    times += [moment.time for moment in story.chain if moment.attempt == one.number]
    return max(instant(time) or 0.0 for time in times)


def span(found: Sequence[Lane]) -> tuple[float, float]:
    """The first and the last time of all lanes, at least a second apart."""
    low = min(one.begin for one in found)
    return low, max(*(one.end for one in found), low + 1)
