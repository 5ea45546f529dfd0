"""A member's side: it starts the round that it is told to, kills its ranks for every other reason, and says what is so.

Its right to run ranks is a lease, which counts from when the newest of its words was sent that the leader has answered: a
report, or a beat of the link. So the leader knows, from when it received that one, when the ranks of a member that it hears
no more are dead at the latest, however long an answer was under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.rounds.model import FIRST, NONE, Fault, Kill, Leave, Order, Report, Round, Start, Wanted

if TYPE_CHECKING:
    from oarlock_trainer.agent.rounds.model import Action, Limits

_REMEMBERED = 64
"""Reports whose time of sending is kept: those of a lease, at any sensible pace of beats."""


class Member:
    """What the agent of one pod knows of rounds. `running` until `gone` says that no process of a rank is left."""

    def __init__(
        self, *, rank: int, agent: str, incarnation: int, limits: Limits, now: float, follows_the_dead: bool = True
    ) -> None:
        self._rank, self._agent, self._incarnation = rank, agent, incarnation
        self._limits = limits
        self._follows_the_dead = follows_the_dead
        self._newest: Order | None = None
        self._round = NONE
        self._sequence = 0
        self._sent_at: dict[int, float] = {}
        self._answered_at = now
        self._fault: Fault | None = None
        self.running = self.able = self.finished = self.left = False
        self.step = -1
        self.held: tuple[tuple[int, tuple[int, ...]], ...] = ()

    # What happens in this pod

    def begins(self) -> bool:
        """Whether this pod's ranks start the first round now: nobody needs to be asked, for nothing was before it."""
        told = self._newest is not None and self._newest.place > (FIRST, Wanted.TRAIN)
        if told or self._round >= FIRST or self._incarnation > 1:
            return False
        self._round, self.running = FIRST, True
        return True

    def failed(self, fault: Fault) -> list[Action]:
        """A rank ended, or must end: the whole node's do. The best reason of a round is kept."""
        if self._fault is None or fault.weight < self._fault.weight:
            self._fault = fault
        return [Kill(fault.why)] if self.running else []

    def gone(self) -> None:
        """No process of any rank is left."""
        self.running = False

    # The link

    def report(self, now: float) -> Report:
        """What is so, to be sent now."""
        self._sequence += 1
        self._sent_at[self._sequence] = now
        self._sent_at.pop(self._sequence - _REMEMBERED, None)
        return Report(
            rank=self._rank,
            agent=self._agent,
            incarnation=self._incarnation,
            sequence=self._sequence,
            round=self._round,
            running=self.running,
            able=self.able,
            finished=self.finished,
            fault=self._fault,
            step=self.step,
            held=self.held,
            follows_the_dead=self._follows_the_dead,
        )

    def hear(self, order: Order, heard: int, now: float) -> list[Action]:
        """Obey. `heard` is the sequence of the newest report that the leader had when it gave the order."""
        self.answered(self._sent_at.get(heard, float("-inf")))
        if self.left or (self._newest and order.place < self._newest.place):
            return []
        self._newest = order
        if order.wanted is Wanted.LEAVE:
            self.left = True
            return [Leave(order.code, order.why)]
        if order.wanted is Wanted.STAND_BY:
            return self._stand_by(order)
        return self._train(order, now)

    def answered(self, sent_at: float) -> None:
        """The leader has answered what was sent to it then."""
        self._answered_at = max(self._answered_at, sent_at)

    @property
    def waits(self) -> bool:
        """Whether the leader has told this member to stand by, and it does."""
        return self._newest is not None and self._newest.wanted is Wanted.STAND_BY and not self.running

    def turn(self, now: float) -> list[Action]:
        """Kill the ranks once nobody has answered for the length of a lease; leave once nobody has for much longer."""
        unanswered = now - self._answered_at
        why = f"rank 0's agent has not answered for {unanswered:.1f} s"
        if self.left or unanswered <= self._limits.lease:
            return []
        if unanswered > self._limits.patience:
            self.left = True
            return [Leave(ExitCode.PEER_LOST, why)]
        return self.failed(Fault(ExitCode.PEER_LOST, why)) if self.running else []

    def _stand_by(self, order: Order) -> list[Action]:
        if order.round > self._round:  # of a later leader, which has to count on from here
            self._round = Round(order.round.term, max(order.round.number, self._round.number))
        return [Kill(order.why, order.code)] if self.running else []

    def _train(self, order: Order, now: float) -> list[Action]:
        if order.round <= self._round or self.running or self._agent not in order.members:
            return []
        if now - self._answered_at > self._limits.lease:
            return []  # an order that was under way for long: its leader may have given this member up
        self._round, self._fault, self.step = order.round, None, -1
        self.running, self.finished = True, False
        return [Start(order)]
