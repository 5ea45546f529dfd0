"""What rank 0's agent tells of rounds, for the operator's books: how each ended, and what the next one began with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.rounds import MAX_ROUNDS, RoundEnd
from oarlock_trainer.agent.rounds.model import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.agent.rounds.ended import Ended
    from oarlock_trainer.agent.rounds.leader import Leader


class Books:
    """Of one attempt's rounds, as rank 0's agent knows them."""

    def __init__(
        self,
        tell: Callable[[int, tuple[RoundEnd, ...], tuple[int, ...]], None],
        *,
        timestamp: Callable[[float], str],
        now: float,
    ) -> None:
        """`tell` takes the number of the newest round, how those before it ended, and the newest one's pods by place.

        Those are left out where each place is that of its own pod.

        `timestamp` writes the moment so many seconds ago.
        """
        self._tell, self._timestamp = tell, timestamp
        self._ends: tuple[RoundEnd, ...] = ()
        self._faulty_since: float | None = None
        self._in_memory: int | None = None
        """The step in memory that the newest round was ordered to begin with."""
        self._sign_at = now
        """When this node's ranks last made progress in a round."""

    def watch(self, leader: Leader, status: PodStatus, now: float) -> None:
        """Note whether the ranks make progress, before the leader decides whether their round ends."""
        if leader.order.wanted in (Wanted.TRAIN, Wanted.YIELD):
            self._sign_at = now - (status.silent_seconds or 0.0)

    def keep(self, leader: Leader, status: PodStatus, now: float) -> None:
        """Tell of the rounds that ended, and of what became of the last of them."""
        number = leader.order.round.number
        while leader.ended:
            self._in_memory = leader.order.step
            end = self._of(leader.ended.pop(0), resumed_step=leader.order.step, now=now)
            self._ends = (*self._ends, end)[-MAX_ROUNDS:]
            self._tell_all(leader)
        if self._faulty_since is None or status.round != number:
            return
        last = self._ends[-1]
        known = last.resumed_step if status.resumed_from_step is None else status.resumed_from_step
        from_memory = known is not None and known == self._in_memory
        if status.figures.step is not None:
            down, self._faulty_since = round(now - self._faulty_since, 3), None
            self._note(leader, replace(last, resumed_step=known or 0, from_memory=from_memory, down_seconds=down))
        elif known != last.resumed_step:
            self._note(leader, replace(last, resumed_step=known, from_memory=from_memory))

    def _of(self, ended: Ended, *, resumed_step: int | None, now: float) -> RoundEnd:
        silent = max(0.0, ended.at - self._sign_at) if ended.fault.code == ExitCode.HANG else 0.0
        self._faulty_since = ended.at - silent
        return RoundEnd(
            number=ended.round.number,
            ended_at=self._timestamp(now - ended.at),
            rank=ended.rank,
            code=ended.fault.code,
            why=ended.fault.why,
            step=ended.step if ended.step >= 0 else None,
            resumed_step=resumed_step,
            gpu=(gpu := ended.fault.gpu),
            other_gpus=bool(ended.gpus - {gpu.uuid if gpu else ""}),
            silent_seconds=round(silent, 3),
            start_wait_seconds=round(now - ended.at, 3),
            from_memory=resumed_step is not None,
            lost_pod=ended.replaced,
            nodes=ended.nodes,
            spare=ended.spare,
        )

    def _note(self, leader: Leader, end: RoundEnd) -> None:
        self._ends = (*self._ends[:-1], end)
        self._tell_all(leader)

    def _tell_all(self, leader: Leader) -> None:
        self._tell(leader.order.round.number, self._ends, leader.unusual_members)
