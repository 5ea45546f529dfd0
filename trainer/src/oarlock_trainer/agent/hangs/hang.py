"""When a rank counts as hung: too long without a step, or without a sign of whatever it does that is no step.

Pure: what ranks tell goes in, with the time as an argument; a Hang comes out. Time that the agent did not watch is not
held against the ranks: a paused machine or container stops both, and what the ranks tell right after is heard first.

    a step is overdue after      hangSeconds where the job sets it, else max(60 s, 5 x the 99th percentile of recent steps)
    everything that is no step   has an allowance of its own, _ALLOWANCES, or hangSeconds where that is longer
    a rank that waits for others is not judged; whoever it waits for is, by the agent of its own node
    a program that may be unable to tell of steps is not judged before its first one
    ranks that start anew from memory may take max(120 s, 5 x the longest start of this pod) to their first step
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oarlock_api.contract.status import PodPhase
from oarlock_api.contract.wire import integer, text
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_trainer.runtime.channel import Message

_LEAST_SECONDS = 60.0
"""Stalls of shared storage and of a fabric that reroutes end by themselves within half a minute."""
_FACTOR = 5.0
"""Times the 99th percentile: a bucket of larger pictures or a busy neighbour makes a step two or three times longer."""
_RECENT = 200
"""Steps: so many that the two slowest do not count, so few that another pace is learned within minutes."""

_FIRST_STEP_SECONDS = 1800.0
"""Imports, and start to first step: weights over slow storage, NCCL's first rings, compiling. A peer that never comes is
noticed earlier, by the rendezvous' own timeout."""
_LEAST_START_SECONDS = 120.0
"""The same for ranks that have all but frozen weights in memory: a storage that stalls does so for half a minute, twice."""
_ALLOWANCES = {
    PodPhase.PREPROCESSING: 900.0,  # between two batches: loading 10 GB of text encoder comes before the first
    PodPhase.VALIDATING: 1800.0,  # some dozens of pictures at full size on one rank
    PodPhase.SAVING: 900.0,  # 170 GB of a full-rank FLUX.1 checkpoint at 200 MB/s
    PodPhase.EXPORTING: 1800.0,  # rank 0 alone writes 24 GB and may have to copy the encoders
    PodPhase.DONE: 300.0,  # closing NCCL's groups can hang, and must not hold the GPUs for ever
}
_LONGEST_TURN = 5.0
"""Seconds between two looks that count. The agent looks every second: a longer pause was its own, or the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a rank stands: its last step of this attempt, None before the first, and the seconds since its last sign."""

    rank: int
    phase: PodPhase
    step: int | None
    silent: float
    allowed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """`overdue` has been silent for longer than allowed; `ranks` are all that run on this node, that one among them."""

    overdue: Standing
    ranks: tuple[Standing, ...]


@dataclass(slots=True)
class _Rank:
    sign_at: float
    phase: PodPhase = PodPhase.STARTING
    step: int | None = None
    waiting: bool = False
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))


class Starts:
    """How long this pod's ranks have taken to their first step, round by round: those after them may take some times that."""

    def __init__(self) -> None:
        self._longest: float | None = None

    def took(self, seconds: float) -> None:
        """A rank has done its first step so long after the start."""
        self._longest = max(seconds, self._longest or 0.0)

    def allowed(self, *, from_memory: bool) -> float:
        """Seconds that the next start may take. Ranks that read a checkpoint may have more to read than any before."""
        if not from_memory or self._longest is None:
            return _FIRST_STEP_SECONDS
        return min(_FIRST_STEP_SECONDS, max(_LEAST_START_SECONDS, _FACTOR * self._longest))


class Watch:
    """Follows the ranks of one node from `now` on. `hang_seconds` 0 = learn from the steps.

    `awaits_first_step`: the program is known to tell of its steps, so that the first one can be overdue. `starts` is told
    how long that took; `from_memory`: the ranks go on from what their nodes have in memory.
    """

    def __init__(
        self,
        ranks: Iterable[int],
        *,
        hang_seconds: float,
        awaits_first_step: bool,
        now: float,
        starts: Starts | None = None,
        from_memory: bool = False,
    ) -> None:
        self._hang_seconds = hang_seconds
        self._starts = starts or Starts()
        self._first_step_seconds = self._starts.allowed(from_memory=from_memory)
        self._awaits_first_step = awaits_first_step
        self._looked_at = now
        self._watched = 0.0
        self._ranks = {rank: _Rank(sign_at=0.0) for rank in ranks}

    @property
    def allowed(self) -> float | None:
        """Seconds that the strictest rank may go without a sign now; None where nothing is judged."""
        least = min((self._allowed(rank) for rank in self._ranks.values()), default=math.inf)
        return least if math.isfinite(least) else None

    def advance(self, now: float) -> None:
        """Let time pass; to be called before what was told meanwhile is taken."""
        self._watched += min(max(now - self._looked_at, 0.0), _LONGEST_TURN)
        self._looked_at = now

    def take(self, message: Message) -> None:
        """Take in what a rank tells. What is no sign of progress (a note, an end) changes nothing."""
        rank = self._ranks.get(message.rank)
        if rank is None or message.event not in _SIGNS:
            return
        if message.event == Event.STEP:
            if rank.phase is PodPhase.TRAINING:
                rank.recent.append(self._watched - rank.sign_at)
            if rank.step is None:
                self._starts.took(self._watched)
            rank.phase = PodPhase.TRAINING  # whatever was to say so was lost
            rank.step = integer(message.fields.get("step")) or 0
        elif message.event == Event.PHASE and (name := text(message.fields.get("name"), 32)) in frozenset(PodPhase):
            rank.phase = PodPhase(name)
        rank.waiting = message.event == Event.WAITING
        rank.sign_at = self._watched

    def ended(self, rank: int) -> None:
        """The rank's process is gone."""
        self._ranks.pop(rank, None)

    def hang(self) -> Hang | None:
        """The hang that the ranks are in now."""
        found = self.stand()
        return found if found and found.overdue.silent > found.overdue.allowed else None

    def stand(self) -> Hang | None:
        """Where the ranks stand, `overdue` the first of them that would be; None where none runs."""
        standings = tuple(self._standing(number, rank) for number, rank in sorted(self._ranks.items()))
        first = max(standings, key=lambda standing: standing.silent - standing.allowed, default=None)
        return Hang(overdue=first, ranks=standings) if first else None

    def _standing(self, number: int, rank: _Rank) -> Standing:
        return Standing(
            rank=number,
            phase=rank.phase,
            step=rank.step,
            silent=self._watched - rank.sign_at,
            allowed=self._allowed(rank),
        )

    def _allowed(self, rank: _Rank) -> float:
        if rank.waiting or (rank.step is None and not self._awaits_first_step):
            return math.inf
        if rank.phase is PodPhase.TRAINING and rank.step is not None:
            return self._hang_seconds or max(_LEAST_SECONDS, _FACTOR * _percentile_99(rank.recent))
        return max(_ALLOWANCES.get(rank.phase, self._first_step_seconds), self._hang_seconds)


_SIGNS = (frozenset(Event) - {Event.NOTE, Event.FAILURE}) | {HostEvent.STARTED}


def _percentile_99(seconds: deque[float]) -> float:
    """By the nearest rank; of fewer than a hundred it is the longest, so that one slow step is patience at first."""
    if not seconds:
        return 0.0
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]
