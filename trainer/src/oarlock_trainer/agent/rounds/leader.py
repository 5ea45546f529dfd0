"""The leader's side: who is there, when the next round starts and with whom, and when there is no use in another one.

A round starts when each of its places has a member that stands by, and when nothing of a round before can still run: each
member has promised not to start it any more, and a pod that was replaced or left out has had the time to lose its lease.
Where a member is lost, fails or is replaced, the round ends for all; they stand by until the gang is whole, or until as many
are there as it may train with, or until patience ends. What befalls a pod that is no member ends no round.

A round with fewer members than places ends as well once it can be larger, and each does once a pod of it is asked to go: its
ranks save, and end by themselves. That waits until the next pod is ready where the operator makes it meanwhile.

A later leader counts on from the rounds that its members tell of, and tells how the last of them ended: with its own pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.rounds import backoff
from oarlock_trainer.agent.rounds.attendance import STUCK, Attendance, Lack, Lost
from oarlock_trainer.agent.rounds.ended import Ended
from oarlock_trainer.agent.rounds.in_memory import newest_step
from oarlock_trainer.agent.rounds.model import FIRST, FOR_ALL, Fault, Order, Place, Round, Wanted
from oarlock_trainer.agent.rounds.surge import Surge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oarlock_trainer.agent.rounds.membership import Membership
    from oarlock_trainer.agent.rounds.model import Limits, Report


class Leader:
    """The rounds of one attempt, as rank 0's agent leads them. `term` is the incarnation of its pod, from 1 on.

    The first round of the first leader runs from the start: members begin it by themselves. `order` is what is told to every
    pod, `ended` what happened to the rounds before (for the operator's books).
    """

    def __init__(self, *, term: int, gang: Membership, limits: Limits, now: float) -> None:
        self._gang, self._limits = gang, limits
        self._since = now
        self._step = -1
        self._fruitless = 0
        self._failures = 0
        """Rounds that the program has ended by itself, since the newest step and before the newest round."""
        self._troubled_at: float | None = None
        self._larger_since: float | None = None
        """Since when more pods are able than train, and enough for a larger round."""
        self._pods = Attendance(term=term, gang=gang, limits=limits, now=now)
        self.order = Order(Round(term, 0), Wanted.STAND_BY, why="the gang gathers")
        self._members: tuple[int, ...] = tuple(range(gang.pods))
        """Ranks of the pods of the newest round, by place. A later leader does not know them: any pod may be one."""
        if term == FIRST.term:
            self.order = Order(FIRST, Wanted.TRAIN)
            self._members = gang.own
        self._agents: set[str] = set()
        """Of those members; none where it is not known, as of the first round."""
        self._end: Ended | None = None
        """Of the newest round, while the gang stands by after it."""
        self.ended: list[Ended] = []
        self.surge = Surge()
        self.deposed = False
        """A member follows a later leader: this one's pod is to end, and says nothing to anybody."""

    def hear(self, report: Report, now: float) -> str:
        """Take a report in. Returns why it does not count; empty where it does, or is late."""
        if not 0 <= report.rank < self._gang.pods:
            return f"there is no pod {report.rank} in a gang of {self._gang.pods}"
        self.deposed = self.deposed or report.round.term > self.order.round.term
        if self._pods.holds(report):
            return f"another agent is that of pod {report.rank}"
        if before := self._pods.hear(report, now):
            self._blame(before, _replaced(report.rank))
        if self._end and report.round == self._end.round and self._was_of_round(report):
            self._learn(self._end, report)
        return ""

    def _was_of_round(self, report: Report) -> bool:
        """Whether this pod trained in the newest round. Another one that promises its number tells of one before it."""
        return report.rank in self._members and (not self._agents or report.agent in self._agents)

    @staticmethod
    def _learn(end: Ended, report: Report) -> None:
        """What a member says of the round that ended, after it did."""
        end.step = max(end.step, report.step)
        if fault := report.fault:
            end.gpus |= {fault.gpu.uuid} if fault.gpu else set()
            end.blame(report.rank, fault)

    def lose(
        self, rank: int, incarnation: int, fault: Fault, heard_at: float, *, at: str = "", over: bool = False
    ) -> None:
        """The link has lost that pod of this rank, and read its last word then. It, or a later one, is waited for."""
        over = over or self._has_promised(rank, incarnation)
        if gone := self._pods.lose(rank, Lost(incarnation, fault, heard_at, at, over)):
            self._blame(gone, fault)

    def _has_promised(self, rank: int, incarnation: int) -> bool:
        """Whether that pod's last word was that none of its ranks is left, and it starts none of this round."""
        seat = self._pods.seats.get(rank)
        if seat is None or seat.report.incarnation != incarnation or not self._was_of_round(seat.report):
            return False
        return not seat.report.running and seat.report.round >= self.order.round

    def _blame(self, gone: Report, fault: Fault) -> None:
        """The round ended with this pod, where its ranks still ran: all that others said of the end came of that."""
        ran = gone.running and self._was_of_round(gone)
        asked = fault.code == ExitCode.LEFT_ON_REQUEST  # of a gang that stands by
        if self._end and gone.round == self._end.round and ran and not asked:
            self._end.blame(gone.rank, fault, gone.incarnation)

    @property
    def lost(self) -> Mapping[int, Lost]:
        """Rank -> its pod that is lost, whether it trained or not."""
        return self._pods.lost

    @property
    def unusual_members(self) -> tuple[int, ...]:
        """Ranks of the pods of the newest round, by place; none where each place is that of its own pod."""
        return () if self._members == self._gang.own else self._members

    def incarnation(self, rank: int) -> int:
        """Of the pod of this rank that was heard last; 1 where none was."""
        return self._pods.seats[rank].report.incarnation if rank in self._pods.seats else 1

    def heard(self, rank: int) -> int:
        """The sequence of the newest report of this rank's member: goes with each order to it."""
        seat = self._pods.seats.get(rank)
        return seat.report.sequence if seat else 0

    def turn(self, now: float) -> None:
        """Decide what is wanted from here on."""
        if self.deposed:
            return
        if self.order.wanted in (Wanted.TRAIN, Wanted.YIELD):
            self._watch(now)
        elif self.order.wanted is Wanted.STAND_BY:
            self._gather(now)

    def missing(self, now: float) -> dict[int, Lack]:
        """Rank -> why the next round can't start with this pod yet."""
        lacks = ((rank, self._lack(rank, now)) for rank in range(self._gang.pods))
        return {rank: lack for rank, lack in lacks if lack}

    def _lack(self, rank: int, now: float) -> Lack | None:
        return self._pods.lack(rank, now, last=self.order.round, members=frozenset(self._members))

    # While a round runs

    def _watch(self, now: float) -> None:
        reports = self._of_round()
        if len(reports) == len(self._members) and all(report.finished for report in reports):
            self._leave(0, "all ranks are done")
            return
        troubles = list(self._troubles(now))
        if not troubles:
            self._watch_yield(reports, now)
            return
        self._troubled_at = now if self._troubled_at is None else self._troubled_at
        rank, fault = min(troubles, key=lambda trouble: trouble[1].weight)
        if fault.code == ExitCode.PEER_LOST and not fault.lost and now - self._troubled_at < self._limits.settle:
            return
        self._end_round(rank, fault, now)
        self._gather(now)

    def _of_round(self) -> list[Report]:
        """What members say of the newest round."""
        seats = (self._pods.seats[rank] for rank in self._members if rank in self._pods.seats)
        return [seat.report for seat in seats if seat.report.round == self.order.round]

    def _troubles(self, now: float) -> Iterator[tuple[int, Fault]]:
        agents = {place.rank: place.agent for place in self.order.members}
        members = frozenset(self._members)
        for rank, lost in self._pods.lost.items():
            if rank in members and not self._has_yielded(rank, lost):
                yield rank, lost.fault
        for rank, seat in self._pods.seats.items():
            if rank not in members:
                continue
            if seat.report.agent != agents[rank] if agents else seat.report.incarnation > 1:
                yield rank, _replaced(rank)
            elif seat.report.fault and seat.report.round == self.order.round:
                yield rank, seat.report.fault
            elif silent := self._pods.silent(rank, now):
                yield rank, Fault(ExitCode.PEER_LOST, f"pod {rank}'s agent has been silent for {silent:.1f} s")

    def _has_yielded(self, rank: int, lost: Lost) -> bool:
        """Whether that pod's ranks had saved and ended before it left: those of others may still."""
        seat = self._pods.seats.get(rank)
        left = lost.fault.code == ExitCode.LEFT_ON_REQUEST and self.order.wanted is Wanted.YIELD
        return left and seat is not None and not seat.report.running

    def _watch_yield(self, reports: list[Report], now: float) -> None:
        """Have a round yield that a pod is to leave, or that could be larger; end it once it has."""
        leaving = [report for report in reports if report.leaving]
        if self.order.wanted is Wanted.YIELD:
            ended = len(reports) == len(self._members) and not any(report.running for report in reports)
            if ended or now - self._since > self._limits.yielding:
                self._end_yield(leaving, self.order.why, now, saved=ended)
        elif leaving and self.surge.holds(leaving, now):
            self.order = self.order if self.order.holds else replace(self.order, holds=True)
        elif leaving:
            why = f"pod {leaving[0].rank} was asked to go"
            if max(report.step for report in reports) < 0:  # nothing to save, and some may never have begun
                self._end_yield(leaving, why, now, saved=False)
            else:
                self._yield(why, now)
        else:
            self._watch_size(reports, now)

    def _end_yield(self, leaving: list[Report], why: str, now: float, *, saved: bool) -> None:
        rank, incarnation = (leaving[0].rank, leaving[0].incarnation) if leaving else (0, 0)
        fault = Fault(ExitCode.LEFT_ON_REQUEST, why, lost=bool(leaving))
        self._end_round(rank, fault, now, yielded=not leaving, saved=saved, leaving=incarnation)
        self._gather(now)

    def _yield(self, why: str, now: float) -> None:
        self.order = replace(self.order, wanted=Wanted.YIELD, code=ExitCode.LEFT_ON_REQUEST, why=why, holds=False)
        self._since = now

    def _watch_size(self, reports: list[Report], now: float) -> None:
        """Have a round yield that has been smaller than it could be for long enough."""
        if not self._gang.elastic or len(self._members) == self._gang.nodes:
            return
        others = [rank for rank in range(self._gang.pods) if rank not in self._members]
        able = len(self._members) + sum(self._lack(rank, now) is None for rank in others)
        size = self._gang.largest(able)
        if size <= len(self._members):
            self._larger_since = None
            return
        self._larger_since = now if self._larger_since is None else self._larger_since
        # One that has finished no step counts as fruitless: growing is no reason to give the gang up.
        too_soon = (
            max((report.step for report in reports), default=-1) < 0 and self._fruitless + 1 >= self._limits.fruitless
        )
        if not too_soon and (size == self._gang.nodes or now - self._larger_since > self._gang.patience):
            self._yield(f"the gang can train on {size} nodes instead of {len(self._members)}", now)

    def _end_round(
        self, rank: int, fault: Fault, now: float, *, yielded: bool = False, saved: bool = False, leaving: int = 0
    ) -> None:
        """`saved`: its ranks have saved what they did, if they did a step, and ended by themselves.

        `leaving`: the incarnation of that rank's pod, where it was asked to go.
        """
        reports = self._of_round()
        reached = max((report.step for report in reports), default=-1)
        if reached > self._step:
            self._fruitless = self._failures = 0
        elif not leaving and (not saved or reached < 0):
            self._fruitless += 1
        self._step = max(reached, self._step)
        gpus = {report.fault.gpu.uuid for report in reports if report.fault and report.fault.gpu}
        lost = self.lost[rank].incarnation if rank in self.lost else leaving
        self._end = Ended(self.order.round, rank, fault, reached, now, gpus, lost, yielded=yielded)
        self.order = Order(self.order.round, Wanted.STAND_BY, code=fault.code, why=fault.why)
        self._since, self._larger_since, self._troubled_at = now, None, None

    # Between rounds

    def _gather(self, now: float) -> None:
        fault = self._end.fault if self._end else None
        if fault and fault.code in FOR_ALL:
            self._leave(ExitCode.PEER_LOST if fault.lost else fault.code, fault.why)
            return
        if self._pods.may_be_led_elsewhere:
            self._leave(ExitCode.PEER_LOST, "the pod 0 before this one may still train alone: nobody saw its end")
            return
        lacks = self.missing(now)
        members = self._chosen(lacks, now)
        if fault and members and self._fruitless >= self._limits.fruitless:
            how_far = f"came no further than step {self._step}" if self._step > 0 else "finished no step"
            self._leave(fault.code, f"{self._fruitless} rounds in a row {how_far}; the last: {fault.why}")
        elif members:
            if not self._end or now - self._end.at >= backoff.seconds(self._failures, self._end.fault, self._limits):
                self._begin(members, now)
        elif now - self._since > (patience := self._patience(lacks)):
            rank, lack = next(iter(lacks.items()))
            self._leave(ExitCode.PEER_LOST, f"the gang was not whole within {patience:g} s: pod {rank} {lack.why}")

    def _chosen(self, lacks: Mapping[int, Lack], now: float) -> tuple[int, ...]:
        """The members of the next round, by place; none while some are waited for."""
        if 0 in lacks or any(lack.may_run for lack in lacks.values()):
            return ()
        there = [rank for rank in range(self._gang.pods) if rank not in lacks]
        yielded = self._end is not None and self._end.yielded
        if len(there) < self._gang.nodes and not yielded and now - self._since <= self._gang.patience:
            return ()
        return self._gang.chosen(there, self._members)

    def _begin(self, members: tuple[int, ...], now: float) -> None:
        seats = self._pods.seats
        heard = [seat.report for seat in seats.values()]
        number = max(report.round.number for report in heard)
        self._book_end(Round(self.order.round.term, number), members)
        found = None
        if not self._may_have_missed_rounds(heard):
            agents = None if self._gang.is_fixed else self._agents
            found = newest_step([seats[rank].report for rank in members], heard, before=agents)
        step, made_by = found or (None, len(members))
        next_round = Round(self.order.round.term, max(number, self.order.round.number) + 1)
        places = tuple(Place(rank, seats[rank].report.agent) for rank in members)
        made_by = 0 if made_by == len(members) else made_by
        self.order = Order(next_round, Wanted.TRAIN, places, step, why=self.order.why, made_by=made_by)
        self._members, self._since, self._agents = members, now, {place.agent for place in places}

    def _may_have_missed_rounds(self, heard: Sequence[Report]) -> bool:
        """Whether pods that this leader did not hear, or that are new, are enough for a later round under the one before it.

        What others hold would be of an earlier round then, and a newer checkpoint may be there that nobody knows of.
        """
        if self._gang.is_fixed or self._agents or self.order.round.term == FIRST.term:
            return False
        known = sum(report.rank != 0 and report.incarnation == 1 for report in heard)
        return self._gang.pods - known >= self._gang.smallest  # rank 0's was one of them

    def _patience(self, lacks: Mapping[int, Lack]) -> float:
        awaited = [lack.why for lack in lacks.values() if lack.may_run]
        all_are_there = self._gang.pods - len(lacks) + len(awaited) >= self._gang.nodes
        stuck = awaited and all_are_there and all(why == STUCK for why in awaited)
        return min(self._limits.clearing, self._limits.patience) if stuck else self._limits.patience

    def _book_end(self, last: Round, members: tuple[int, ...]) -> None:
        """`last` is the newest round that any member has been in, `members` are those of the next."""
        if self.order.round.number == 0 < last.number:
            self._step = max(seat.report.step for seat in self._pods.seats.values())
            self._end = Ended(last, 0, _replaced(0), self._step, self._since)
        if end := self._end:
            same = end.rank in members and self._pods.seats[end.rank].report.incarnation <= end.incarnation
            end.replaced = end.fault.lost and not same
            size = min(len(self._members), self._gang.nodes)
            end.nodes = len(members) if len(members) != size else None
            end.spare = len(members) <= size and not set(members) <= set(self._members)
            self._failures += backoff.is_own(end.fault)
            self.ended.append(end)
            self._end = None

    def _leave(self, code: int, why: str) -> None:
        self.order = Order(self.order.round, Wanted.LEAVE, code=code, why=why)


def _replaced(rank: int) -> Fault:
    return Fault(ExitCode.PEER_LOST, f"pod {rank} was lost", lost=True)
