"""Which step the next round can go on from in its members' memory. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from oarlock_trainer.agent.rounds.model import Report


def newest_step(
    members: Sequence[Report], heard: Sequence[Report], *, before: Collection[str] | None = None
) -> int | None:
    """The newest step of which each place's part is at its member, these by place; None where there is none.

    A copy of a lost one's has come back to it by now. Where members are chosen, `before` are the agents of the round before
    (empty: not known), and a part may also be at another member, which the one that lacks it copies it from. What others
    hold may be of an earlier round.

    Nobody goes back behind a checkpoint: rank 0's member knows best of those, and all that were `heard` where its pod is new.
    """
    holders = [[report] for report in members]
    if before is not None:
        number = max(report.round.number for report in heard)
        of_last = [one for one in members if one.round.number == number and (not before or one.agent in before)]
        holders = [of_last] * len(members)
    there = ({step for one in of for step, parts in one.held if place in parts} for place, of in enumerate(holders))
    newest = max(set.intersection(*there), default=-1)
    saved = members[0].saved if members[0].saved >= 0 else max(report.saved for report in heard)
    return newest if newest >= max(saved, 0) else None
