"""The leader's side: who is there, when the next round starts, and when there is no use in another one.

A round starts when each rank has a member that stands by, and when nothing of a round before can still run: each member
has promised not to start it any more, and a pod that was replaced has had the time to lose its lease. Where a member is
lost, fails or is replaced, the round ends for all; they stand by until the gang is whole, or patience ends.

A later leader counts on from the rounds that its members tell of, and tells how the last of them ended: with its own pod.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.rounds.model import FIRST, FOR_ALL, Fault, Order, Round, Seat, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_trainer.agent.rounds.model import Limits, Report


@dataclass
class Ended:
    """How a round ended: by which rank's fault, after which step (-1: none), and when.

    `gpus` are the UUIDs of all of which drivers spoke in it.
    `incarnation` is that of a pod that was lost with it; `replaced`: the next one has a later pod of that rank.
    """

    round: Round
    rank: int
    fault: Fault
    step: int
    at: float
    gpus: set[str] = field(default_factory=set)
    incarnation: int = 0
    replaced: bool = False


@dataclass(frozen=True)
class Lost:
    """An incarnation of a rank's pod that the link has lost, and that was not heard since. `at`: when, as /status has it."""

    incarnation: int
    fault: Fault
    at: str


_STUCK = "still ends its ranks"


class Leader:
    """The rounds of one attempt, as rank 0's agent leads them. `term` is the incarnation of its pod, from 1 on.

    The first round of the first leader runs from the start: members begin it by themselves. `order` is what is told to every
    member, `ended` what happened to the rounds before (for the operator's books).
    """

    def __init__(self, *, term: int, nodes: int, limits: Limits, now: float) -> None:
        self._nodes, self._limits = nodes, limits
        self._since = now
        self._step = -1
        self._fruitless = 0
        self._troubled_at: float | None = None
        self._seats: dict[int, Seat] = {}
        self.lost: dict[int, Lost] = {}
        self.saved = -1
        """Step of the newest checkpoint that its ranks told of."""
        self._unpromised_at = now
        """When a member was heard last that had not yet promised to follow this leader, and no earlier one."""
        self.order = Order(Round(term, 0), Wanted.STAND_BY, why="the gang gathers")
        if term == FIRST.term:
            self.order = Order(FIRST, Wanted.TRAIN)
        self._end: Ended | None = None
        """Of the newest round, while the gang stands by after it."""
        self.ended: list[Ended] = []
        self.deposed = False
        """A member follows a later leader: this one's pod is to end, and says nothing to anybody."""

    def hear(self, report: Report, now: float) -> str:
        """Take a report in. Returns why it does not count; empty where it does, or is late."""
        known = self._seats.get(report.rank)
        if not 0 <= report.rank < self._nodes:
            return f"there is no rank {report.rank} in a gang of {self._nodes}"
        self.deposed = self.deposed or report.round.term > self.order.round.term
        lost = self.lost.get(report.rank)
        if lost and report.incarnation >= lost.incarnation:
            del self.lost[report.rank]  # the same one is back, or the next has come
        if known is None or report.agent != known.report.agent:
            if known and report.incarnation <= known.report.incarnation:
                return f"another agent holds rank {report.rank}"
            if known:
                self._blame(known.report, _replaced(report.rank))
            self._seats[report.rank] = Seat(report, now, now)
        elif report.sequence > known.report.sequence:
            known.report, known.heard_at = report, now
        if report.round.term < self.order.round.term:
            self._unpromised_at = now
        if self._end and report.round == self._end.round:
            self._learn(self._end, report)
        return ""

    @staticmethod
    def _learn(end: Ended, report: Report) -> None:
        """What a member says of the round that ended, after it did."""
        end.step = max(end.step, report.step)
        if report.fault and report.fault.gpu:
            end.gpus.add(report.fault.gpu.uuid)
        if report.fault and report.fault.weight < end.fault.weight:
            end.rank, end.fault = report.rank, report.fault

    def lose(self, rank: int, incarnation: int, fault: Fault, *, at: str = "") -> None:
        """The link has lost that pod of this rank. It, or a later one, is waited for."""
        seat = self._seats.get(rank)
        if seat and seat.report.incarnation > incarnation:
            return
        self.lost[rank] = Lost(incarnation, fault, at)
        if seat:
            self._blame(seat.report, fault)

    def _blame(self, gone: Report, fault: Fault) -> None:
        """The round ended with this pod, where its ranks still ran: all that others said of the end came of that."""
        end = self._end
        if end and gone.round == end.round and gone.running and fault.weight < end.fault.weight:
            end.rank, end.fault, end.incarnation = gone.rank, fault, gone.incarnation

    def incarnation(self, rank: int) -> int:
        """Of the pod of this rank that was heard last; 1 where none was."""
        return self._seats[rank].report.incarnation if rank in self._seats else 1

    def heard(self, rank: int) -> int:
        """The sequence of the newest report of this rank's member: goes with each order to it."""
        seat = self._seats.get(rank)
        return seat.report.sequence if seat else 0

    def turn(self, now: float) -> None:
        """Decide what is wanted from here on."""
        if self.deposed:
            return
        if self.order.wanted is Wanted.TRAIN:
            self._watch(now)
        elif self.order.wanted is Wanted.STAND_BY:
            self._gather(now)

    def missing(self, now: float) -> dict[int, str]:
        """Rank -> why the next round can't start with it yet; empty when the gang is whole."""
        return {rank: why for rank in range(self._nodes) if (why := self._lacks(rank, now))}

    # While a round runs

    def _watch(self, now: float) -> None:
        finished = [seat.report.round == self.order.round for seat in self._seats.values() if seat.report.finished]
        if len(finished) == self._nodes and all(finished):
            self._leave(0, "all ranks are done")
            return
        troubles = list(self._troubles(now))
        if not troubles:
            return
        self._troubled_at = now if self._troubled_at is None else self._troubled_at
        rank, fault = min(troubles, key=lambda trouble: trouble[1].weight)
        if fault.code == ExitCode.PEER_LOST and not fault.lost and now - self._troubled_at < self._limits.settle:
            return
        self._end_round(rank, fault, now)
        self._gather(now)

    def _troubles(self, now: float) -> Iterator[tuple[int, Fault]]:
        members = self.order.members
        for rank, lost in self.lost.items():
            yield rank, lost.fault
        for rank, seat in self._seats.items():
            silent = now - seat.heard_at
            if seat.report.agent != members[rank] if members else seat.report.incarnation > 1:
                yield rank, _replaced(rank)
            elif seat.report.fault and seat.report.round == self.order.round:
                yield rank, seat.report.fault
            elif silent > self._missed_after:
                yield rank, Fault(ExitCode.PEER_LOST, f"rank {rank}'s agent has been silent for {silent:.1f} s")

    def _end_round(self, rank: int, fault: Fault, now: float) -> None:
        reports = [seat.report for seat in self._seats.values() if seat.report.round == self.order.round]
        reached = max((report.step for report in reports), default=-1)
        self._fruitless = 0 if reached > self._step else self._fruitless + 1
        self._step = max(reached, self._step)
        gpus = {report.fault.gpu.uuid for report in reports if report.fault and report.fault.gpu}
        lost = self.lost[rank].incarnation if rank in self.lost else 0
        self._end, self._troubled_at = Ended(self.order.round, rank, fault, reached, now, gpus, lost), None
        self.order = Order(self.order.round, Wanted.STAND_BY, code=fault.code, why=fault.why)
        self._since = now

    # Between rounds

    def _gather(self, now: float) -> None:
        fault = self._end.fault if self._end else None
        if fault and fault.code in FOR_ALL:
            self._leave(fault.code, fault.why)
            return
        missing = self.missing(now)
        if fault and not missing and self._fruitless >= self._limits.fruitless:
            how_far = f"came no further than step {self._step}" if self._step > 0 else "finished no step"
            self._leave(fault.code, f"{self._fruitless} rounds in a row {how_far}; the last: {fault.why}")
        elif not missing:
            number = max(seat.report.round.number for seat in self._seats.values())
            self._book_end(Round(self.order.round.term, number))
            next_round = Round(self.order.round.term, max(number, self.order.round.number) + 1)
            members = tuple(self._seats[rank].report.agent for rank in range(self._nodes))
            self.order = Order(next_round, Wanted.TRAIN, members, self._newest_step(), why=self.order.why)
            self._since = now
        elif now - self._since > (patience := self._patience(missing)):
            rank, why = next(iter(missing.items()))
            self._leave(ExitCode.PEER_LOST, f"the gang was not whole within {patience:g} s: rank {rank} {why}")

    def _patience(self, missing: dict[int, str]) -> float:
        stuck = all(why == _STUCK for why in missing.values())
        return min(self._limits.clearing, self._limits.patience) if stuck else self._limits.patience

    @property
    def _missed_after(self) -> float:
        return math.inf if self._limits.linked else self._limits.lease

    def _lacks(self, rank: int, now: float) -> str:
        seat = self._seats.get(rank)
        if seat is None or rank in self.lost or now - seat.heard_at > self._missed_after:
            return "is not there"
        if seat.report.round < self.order.round or seat.report.running:
            return _STUCK
        if not seat.report.able:
            return "is not ready"
        return "follows a pod that may still run" if self._is_haunted(seat, now) else ""

    def _newest_step(self) -> int | None:
        """The newest step of which each member has its own part. A copy of a lost one's has come back to it by now.

        None where a checkpoint is newer: nobody goes back behind it.
        """
        own = ({step for step, ranks in seat.report.held if rank in ranks} for rank, seat in self._seats.items())
        newest = max(set.intersection(*own), default=-1)
        return newest if newest >= max(self.saved, 0) else None

    def _is_haunted(self, seat: Seat, now: float) -> bool:
        """Whether ranks may live of a pod before this one, which nobody saw end.

        It may follow an earlier leader, which misses a member a lease after that one's promise; then comes its own lease.
        """
        if seat.report.incarnation == 1 or seat.report.follows_the_dead:
            return False
        return now - max(seat.known_since, self._unpromised_at) <= self._limits.lease + self._limits.silence

    def _book_end(self, last: Round) -> None:
        """`last` is the newest round that any member has been in."""
        if self.order.round.number == 0 < last.number:
            self._step = max(seat.report.step for seat in self._seats.values())
            self._end = Ended(last, 0, _replaced(0), self._step, self._since)
        if end := self._end:
            end.replaced = end.fault.lost and self._seats[end.rank].report.incarnation > end.incarnation
            self.ended.append(end)
            self._end = None

    def _leave(self, code: int, why: str) -> None:
        self.order = Order(self.order.round, Wanted.LEAVE, code=code, why=why)


def _replaced(rank: int) -> Fault:
    return Fault(ExitCode.PEER_LOST, f"the pod of rank {rank} was lost", lost=True)
