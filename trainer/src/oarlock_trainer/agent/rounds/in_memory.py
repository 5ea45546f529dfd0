"""Which step the next round can go on from in its members' memory. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from oarlock_trainer.agent.rounds.model import Report


class InMemory(NamedTuple):
    """A step all of whose parts are there. `made_by` how many places."""

    step: int
    made_by: int


def newest_step(
    members: Sequence[Report], heard: Sequence[Report], *, before: Collection[str] | None = None
) -> InMemory | None:
    """The newest step that all parts are there of, in the memory of these members by place; None where there is none.

    Each place's part is at its own member: a copy of a lost one's has come back to it by now. Where members are chosen,
    `before` are the agents of the round before (empty: not known), and a part may be at any of those that are members again;
    who lacks it copies it. So there the step may be one that more or fewer places have made. What others hold may be of an
    earlier round.

    Nobody goes back behind a checkpoint: rank 0's member knows best of those, and all that were `heard` where its pod is new.
    """
    there: defaultdict[InMemory, set[int]] = defaultdict(set)
    number = max(report.round.number for report in heard)
    for place, report in enumerate(members):
        if before is None:
            for step, size, places in report.held:
                there[InMemory(step, size)] |= {place}.intersection(places)
        elif report.round.number == number and (not before or report.agent in before):
            for step, size, places in report.held:
                there[InMemory(step, size)].update(places)
    saved = members[0].saved if members[0].saved >= 0 else max(report.saved for report in heard)
    whole = [found for found, places in there.items() if places.issuperset(range(found.made_by))]
    return max((found for found in whole if found.step >= max(saved, 0)), default=None)
