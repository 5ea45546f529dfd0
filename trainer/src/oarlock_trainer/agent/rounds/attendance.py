"""What a leader knows of the pods of its gang: who is there, who is lost, and of whom ranks may still run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.agent.rounds.model import FIRST, NONE, Fault, Round, Seat

if TYPE_CHECKING:
    from collections.abc import Collection

    from oarlock_trainer.agent.rounds.membership import Membership
    from oarlock_trainer.agent.rounds.model import Limits, Report

STUCK = "still ends its ranks"
_GONE = "is not there"


@dataclass(frozen=True)
class Lost:
    """An incarnation of a rank's pod that the link lost, and has not heard again. `at`: when, as /status has it.

    No word of it that was read after `heard_at` was answered: its lease counts from then at the latest. `over`: its last word
    was that none of its ranks is left.
    """

    incarnation: int
    fault: Fault
    heard_at: float
    at: str
    over: bool = False


@dataclass(frozen=True)
class Lack:
    """Why a pod cannot be of the next round. `may_run`: nor can any round start, as ranks of it may be alive."""

    why: str
    may_run: bool = False


class Attendance:
    """Of the leader with this `term`, from when it was made on. Ranks are those of pods."""

    def __init__(self, *, term: int, gang: Membership, limits: Limits, now: float) -> None:
        self._term, self._gang, self._limits = term, gang, limits
        self._since = self._unpromised_at = now
        self.seats: dict[int, Seat] = {}
        self.lost: dict[int, Lost] = {}

    def hear(self, report: Report, now: float) -> Report | None:
        """Take a report in that is not late. Returns the last one of a pod that this one's has replaced.

        `_unpromised_at` is when a member was heard last that had not yet promised to follow this leader, and no earlier one.
        """
        lost = self.lost.get(report.rank)
        if lost and report.incarnation >= lost.incarnation:
            del self.lost[report.rank]  # the same one is back, or the next has come
        known = self.seats.get(report.rank)
        if known is None or known.report.round.term < self._term or report.round.term < self._term:
            self._unpromised_at = now
        if known is None or report.agent != known.report.agent:
            unanswered = lost.heard_at if known and lost else now
            self.seats[report.rank] = Seat(report, now, now, unanswered, cleared=self._is_cleared(known, lost, now))
            return known.report if known else None
        if report.sequence > known.report.sequence:
            known.report, known.heard_at = report, now
        return None

    def holds(self, report: Report) -> bool:
        """Whether another agent has this rank, in a pod that was made no earlier."""
        known = self.seats.get(report.rank)
        return (
            known is not None and report.agent != known.report.agent and report.incarnation <= known.report.incarnation
        )

    def lose(self, rank: int, lost: Lost) -> Report | None:
        """The link has lost this pod. Returns its last report; None where there was none, or a later pod is there."""
        seat = self.seats.get(rank)
        if seat and seat.report.incarnation > lost.incarnation:
            return None
        self.lost[rank] = lost
        return seat.report if seat else None

    def silent(self, rank: int, now: float) -> float:
        """For how many seconds nothing was heard of it, where that is for longer than it may be; else 0."""
        silent = now - self.seats[rank].heard_at
        return silent if silent > self._limits.lease and not self._limits.linked else 0.0

    def lack(self, rank: int, now: float, *, last: Round, members: Collection[int]) -> Lack | None:
        """Why this pod cannot be of the round after `last`, which had these members; None where it can."""
        seat, of_last = self.seats.get(rank), rank in members
        if seat is None:
            return Lack(_GONE, may_run=of_last and self._may_have_begun(rank, now))
        promised = not seat.report.running and seat.report.round >= (last if of_last else self._promised)
        if rank in self.lost or self.silent(rank, now):
            return Lack(_GONE, may_run=of_last and not self._is_over(rank, now, promised=promised))
        if not promised:
            return Lack(STUCK, may_run=of_last)
        haunted = self._is_haunted(seat, now)
        if seat.report.leaving:
            return Lack("was asked to go", may_run=of_last and haunted)
        if not seat.report.able:
            return Lack("is not ready", may_run=of_last and haunted)
        return Lack("follows a pod that may still run", may_run=of_last) if haunted else None

    @property
    def _promised(self) -> Round:
        """What is in a report of one that was of no round, and follows this leader."""
        return NONE if self._term == FIRST.term else Round(self._term, 0)

    def _is_over(self, rank: int, now: float, *, promised: bool) -> bool:
        """Whether nothing of a pod runs any more that nobody hears.

        Its last word says so, where it follows none that may run; or it had the time to lose its lease and kill its ranks.
        """
        seat, lost = self.seats[rank], self.lost.get(rank)
        silent = now - lost.heard_at if lost else self.silent(rank, now)
        said = promised or (lost is not None and lost.over and lost.incarnation == seat.report.incarnation)
        return silent > self._limits.silence or (said and not self._is_haunted(seat, now))

    def _may_have_begun(self, rank: int, now: float) -> bool:
        """Whether ranks may run of a pod that this leader never heard.

        It may have a lease of an earlier leader, or have begun the first round by itself without ever meeting one. After the
        first round nobody runs ranks who has not.
        """
        newest = max((seat.report.round.number for seat in self.seats.values()), default=0)
        alone = newest <= FIRST.number and rank < self._gang.nodes
        return alone or now - self._since <= self._limits.silence

    def _is_cleared(self, before: Seat | None, lost: Lost | None, now: float) -> bool:
        """Whether it is known of the pod before that nothing of it runs, nor of those before it."""
        if before is None or lost is None or lost.incarnation != before.report.incarnation:
            return False
        return lost.over and not self._is_haunted(before, now)

    def _is_haunted(self, seat: Seat, now: float) -> bool:
        """Whether ranks may live of a pod before this one, which nobody saw end.

        Where there was no leader before, none but this one has answered it, and it does so no more. Else it may follow an
        earlier leader, which misses a member a lease after that one's promise; then comes its own lease.
        """
        if seat.cleared or not _is_unseen(seat.report):
            return False
        if self._term == FIRST.term:
            return now - seat.unanswered_since <= self._limits.silence
        if seat.report.rank == 0 and self._others() >= self._gang.smallest:
            return True  # that leader itself may have enough pods left to begin another round
        return now - max(seat.known_since, self._unpromised_at) <= self._limits.lease + self._limits.silence

    @property
    def may_be_led_elsewhere(self) -> bool:
        """Whether rank 0's pod before this one may lead a round of its own for ever: nobody saw its end, and it is enough."""
        own = self.seats.get(0)
        return own is not None and _is_unseen(own.report) and not self._gang.is_fixed and self._gang.smallest <= 1

    def _others(self) -> int:
        """How many pods may follow an earlier leader: all that have not promised to follow this one.

        None can where a round needs all pods: one that has promised is of none but this leader's.
        """
        if self._gang.is_fixed:
            return 0
        promised = (one.report.round.term >= self._term and not _is_unseen(one.report) for one in self.seats.values())
        return self._gang.pods - sum(promised)


def _is_unseen(report: Report) -> bool:
    """Whether nobody saw the end of the pod before this one."""
    return report.incarnation > 1 and not report.follows_the_dead
