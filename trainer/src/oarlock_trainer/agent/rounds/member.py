"""A member's side: it starts the round that it is told to, kills its ranks for every other reason, and says what is so.

Its right to run ranks is a lease, which counts from when the newest of its words was sent that the leader has answered: a
report, or a beat of the link. So the leader knows, from when it received that one, when the ranks of a member that it hears
no more are dead at the latest, however long an answer was under way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.rounds.model import (
    FIRST,
    NONE,
    Fault,
    Kill,
    Leave,
    Order,
    Report,
    Round,
    Start,
    Wanted,
    Yield,
)

if TYPE_CHECKING:
    from oarlock_trainer.agent.rounds.model import Action, Limits
    from oarlock_trainer.checkpoint.memory.held import Held

_REMEMBERED = 64
"""Reports whose time of sending is kept: those of a lease, at any sensible pace of beats."""


class Member:
    """What the agent of one pod knows of rounds. `running` until `gone` says that no process of a rank is left.

    `first`: it is of the first round. A spare is not.
    """

    def __init__(
        self,
        *,
        rank: int,
        agent: str,
        incarnation: int,
        limits: Limits,
        now: float,
        follows_the_dead: bool = True,
        first: bool = True,
    ) -> None:
        self._rank, self._agent, self._incarnation = rank, agent, incarnation
        self._limits, self._first = limits, first
        self._follows_the_dead = follows_the_dead
        self._newest: Order | None = None
        self._round = NONE
        self._sequence = 0
        self._sent_at: dict[int, float] = {}
        self._answered_at = now
        self._fault: Fault | None = None
        self._started = NONE
        """The newest round whose ranks this agent started."""
        self.outdated = False
        """Whether there was a later one, that it was not in: how its ranks ended and what its node holds is older."""
        self.running = self.able = self.finished = self.left = self.leaving = False
        self.step = self.saved = -1
        self.held: tuple[Held, ...] = ()

    # What happens in this pod

    def begins(self, now: float) -> bool:
        """Whether this pod's ranks start the first round now: nobody needs to be asked, for nothing was before it.

        Not while the leader may have given this member up, and go on without it.
        """
        told = self._newest is not None and self._newest.position > (FIRST, Wanted.TRAIN)
        if told or self._round >= FIRST or self._incarnation > 1 or not self._first:
            return False
        if self.is_alone(now):
            return False
        self._round, self.running = FIRST, True
        self._started = FIRST
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
            fault=None if self.outdated else self._fault,
            step=-1 if self.outdated else self.step,
            held=self.held,
            follows_the_dead=self._follows_the_dead,
            saved=self.saved,
            leaving=self.leaving,
        )

    def hear(self, order: Order, heard: int, now: float) -> list[Action]:
        """Obey. `heard` is the sequence of the newest report that the leader had when it gave the order."""
        self.answered(self._sent_at.get(heard, float("-inf")))
        if self.left or (self._newest and order.position < self._newest.position):
            return []
        self._newest = order
        if order.wanted is Wanted.LEAVE:
            self.left = True
            return [Leave(order.code, order.why)]
        if order.wanted is Wanted.TRAIN:
            return self._train(order, now)
        self._promise(order)
        if not self.running:
            return []
        return [Yield(order.why) if order.wanted is Wanted.YIELD else Kill(order.why, order.code)]

    def answered(self, sent_at: float) -> None:
        """The leader has answered what was sent to it then."""
        self._answered_at = max(self._answered_at, sent_at)

    @property
    def waits(self) -> bool:
        """Whether the leader has told this member to stand by, and it does."""
        return self._newest is not None and self._newest.wanted is Wanted.STAND_BY and not self.running

    @property
    def is_held(self) -> bool:
        """Whether its round goes on although a pod of it was asked to go, as the leader said last."""
        return self._newest is not None and self._newest.wanted is Wanted.TRAIN and self._newest.holds

    @property
    def has_yielded(self) -> bool:
        """Whether its ranks have saved and ended as they were told to, and those of others may still."""
        told = self._newest is not None and self._newest.wanted is Wanted.YIELD and self._is_of_newest
        return told and not self.running

    @property
    def is_aside(self) -> bool:
        """Whether a round runs that this member is not of, as far as it knows."""
        if self.running:
            return False
        if self._newest is None:
            return not self._first
        return self._newest.wanted in (Wanted.TRAIN, Wanted.YIELD) and not self._is_of_newest

    @property
    def _is_of_newest(self) -> bool:
        order = self._newest
        return order is not None and (self._is_of(order) if order.members else self._first)

    def is_alone(self, now: float) -> bool:
        """Whether nobody has answered for the length of a lease."""
        return now - self._answered_at > self._limits.lease

    def turn(self, now: float) -> list[Action]:
        """Kill the ranks once nobody has answered for the length of a lease; leave once nobody has for much longer."""
        unanswered = now - self._answered_at
        why = f"pod 0's agent has not answered for {unanswered:.1f} s"
        if self.left or not self.is_alone(now):
            return []
        if unanswered > self._limits.patience:
            self.left = True
            return [Leave(ExitCode.PEER_LOST, why)]
        return self.failed(Fault(ExitCode.PEER_LOST, why)) if self.running else []

    def seconds_left(self, now: float) -> float:
        """How long the ranks may still run without another answer; without end where none run, or they are to end already."""
        left = self._answered_at + self._limits.lease - now
        return left if self.running and left >= 0 else math.inf

    def _promise(self, order: Order) -> None:
        """Not to start that round any more. A later leader has to count on from the highest round."""
        if order.round > self._round:
            # A new leader that gathers has begun none yet. Its first one may have the number of an earlier one's.
            if self._started > NONE and order.round.number and order.round > self._started:
                self.outdated = True
                self.held = ()  # of a round before one that this pod was not in
            self._round = Round(order.round.term, max(order.round.number, self._round.number))

    def _train(self, order: Order, now: float) -> list[Action]:
        if order.members and not self._is_of(order):
            self._promise(order)
            self.held = ()  # what is here is of no round any more
            return [Kill("the gang goes on without this pod")] if self.running else []
        if order.round <= self._round or self.running or not self._is_of(order):
            return []
        if self.is_alone(now):
            return []  # an order that was under way for long: its leader may have given this member up
        self._round, self._fault, self.step = order.round, None, -1
        self._started, self.outdated = order.round, False
        self.running, self.finished = True, False
        return [Start(order)]

    def _is_of(self, order: Order) -> bool:
        return any(place.rank == self._rank and place.agent == self._agent for place in order.members)
