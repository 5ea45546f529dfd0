"""What leader and members tell each other about rounds. Plain data; everything is told again with each beat.

A member reports what is so, the leader orders what shall be. Nothing is acknowledged and nothing is remembered as sent: a
line that is lost, late, doubled or out of order changes nothing but the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.rounds import serial

if TYPE_CHECKING:
    from oarlock_api.contract.struck_gpu import StruckGpu
    from oarlock_trainer.checkpoint.memory.held import Held

FOR_ALL = frozenset({ExitCode.CONFIGURATION, ExitCode.FENCED, ExitCode.STORAGE, ExitCode.PREFLIGHT})
"""Endings that another round, or another pod, would only repeat: the operator decides on them."""
KILL_SECONDS = 2.0
"""What a member takes at most to kill its ranks."""


@dataclass(frozen=True, order=True)
class Round:
    """One start of all ranks within an attempt. `term` is the incarnation of rank 0's pod that leads, `number` counts in it.

    A later leader has a greater term, so its rounds follow all of those before, even ones that it never heard of.
    """

    term: int
    number: int

    @property
    def serial(self) -> int:
        """By which storage and memory tell it from all others of the attempt."""
        return serial(self.term, self.number)

    @property
    def next(self) -> Round:
        """The round after this one, of the same leader."""
        return Round(self.term, self.number + 1)


NONE = Round(0, 0)
"""Before the first."""
FIRST = Round(1, 1)
"""The one that each pod of a new attempt starts by itself: as soon as it is able, and told of no other."""


class Wanted(IntEnum):
    """What the leader wants, in the order in which it may come within one round."""

    TRAIN = 0
    YIELD = 1
    """The ranks save at the next step boundary and end: the gang can be larger, or a pod was asked to go."""
    STAND_BY = 2
    """No rank runs; the agent, its host and its GPUs stay as they are."""
    LEAVE = 3


@dataclass(frozen=True)
class Place:
    """Who has a place of a round: the pod of this rank, by what its agent drew for itself. Empty where that is not known."""

    rank: int
    agent: str


@dataclass(frozen=True)
class Order:
    """What every member shall do. Orders only grow: one that is smaller than an earlier one is late, and void.

    `members` (none for the first round, which has the pods of ranks 0..nodes-1 by place) are those that train, by place: the
    ranks of the round count by places, and place 0 is its leader's. `step` is the one to resume from memory (None: from the
    newest checkpoint), and `made_by` how many places made it, where they were more or fewer than these (0: as many).
    `code` and `why` are what to leave with, or why there is a round after another one.
    `holds`: a pod of the round was asked to go, and the round goes on until the next one of its rank is ready.
    """

    round: Round
    wanted: Wanted
    members: tuple[Place, ...] = ()
    step: int | None = None
    code: int = 0
    why: str = ""
    holds: bool = False
    made_by: int = 0

    @property
    def position(self) -> tuple[Round, Wanted]:
        """Where it stands among all orders of an attempt."""
        return self.round, self.wanted


@dataclass(frozen=True)
class Fault:
    """Why a member's ranks ended: an exit code of the contract, and one sentence. `sure`: it is certain to be the cause.

    `gpu`: the one whose driver asked for new processes. `lost`: its whole pod is gone, by what the link says.
    """

    code: int
    why: str
    sure: bool = True
    gpu: StruckGpu | None = None
    lost: bool = False

    @property
    def weight(self) -> int:
        """The less, the more it tells: whoever lost a peer, or waits for one that hangs, says nothing about why.

        What others say that lose a whole pod follows from that, whatever it is.
        """
        if self.lost:
            return -1
        if self.code == ExitCode.PEER_LOST:
            return 4
        if self.code == ExitCode.HANG:
            return 2 if self.sure else 3
        return 0 if self.gpu else 1  # what a rank says of the same fault says less


@dataclass(frozen=True)
class Report:
    """What is so at a member. `sequence` grows with each that its agent sends.

    `agent` is drawn once for each process, `incarnation` given by the operator. `round` is the newest whose ranks this agent
    started (or would not start any more), `running` whether one of them may still be alive. `fault` is why they ended by
    themselves, and `step` the newest that they finished: of that round alone. `able`: checks passed and everything is
    imported. `held` are steps in its memory, each with the places whose parts of the state it has. `follows_the_dead`:
    the operator saw that nothing of the pod before it runs any more. `saved` is the step of the newest checkpoint that its
    ranks told of, -1: none. `leaving`: its pod was asked to go, and goes once the gang stands by or trains without it.
    """

    rank: int
    agent: str
    incarnation: int
    sequence: int
    round: Round = NONE
    running: bool = False
    able: bool = False
    finished: bool = False
    fault: Fault | None = None
    step: int = -1
    held: tuple[Held, ...] = ()
    follows_the_dead: bool = True
    saved: int = -1
    leaving: bool = False


@dataclass(frozen=True)
class Limits:
    """Seconds, and rounds.

    `settle`: what others get to name a cause, while all that is known is that somebody lost a peer. `lease`: a member that
    has no answer to anything it sent within so long kills its ranks. `kill`: what that takes at most. `patience`: how long a
    gang waits to be whole again. `clearing`: the same where all are there, and some cannot kill their ranks. `fruitless`:
    rounds in a row that finish no step. `backoff`: what the gang waits after the program's second failure in a row without a
    newer step, doubled with each further one up to `longest_backoff`: recovery.backoffSeconds and
    recovery.maxBackoffSeconds. `yielding`: what ranks get to save and end where their round
    could be larger, or one of its pods was asked to go.
    `linked`: the link says which members are lost, after the length of a lease, and reports come only when they change; if
    not, whoever has reported nothing for a lease is lost.
    """

    settle: float = 1.0
    lease: float = 5.0
    kill: float = KILL_SECONDS
    patience: float = 300.0
    clearing: float = 30.0
    fruitless: int = 3
    backoff: float = 10.0
    longest_backoff: float = 300.0
    yielding: float = 600.0
    linked: bool = False

    @property
    def silence(self) -> float:
        """After it nothing of a member runs any more that was last heard then: clocks run equally fast."""
        return self.lease + self.kill


@dataclass(frozen=True)
class Start:
    """Fork the ranks of this round, which spans these members."""

    order: Order


@dataclass(frozen=True)
class Yield:
    """Have the ranks save at the next step boundary, and end; say so by `Member.gone`. Told again until then."""

    why: str


@dataclass(frozen=True)
class Kill:
    """Kill all ranks; say so by `Member.gone` when none is left. `code`: of what ended the round, 0 where it is one's own."""

    why: str
    code: int = 0


@dataclass(frozen=True)
class Leave:
    """End the pod with this exit code."""

    code: int
    why: str


Action = Start | Yield | Kill | Leave


@dataclass
class Seat:
    """A rank's place in the gang, as its leader knows it: the newest report, when it came, and the first of its agent.

    `unanswered_since`: from when on this leader has answered no pod of the rank before this one. `cleared`: nothing of those
    runs any more, as is known of the last of them.
    """

    report: Report
    heard_at: float
    known_since: float
    unanswered_since: float
    cleared: bool = False
