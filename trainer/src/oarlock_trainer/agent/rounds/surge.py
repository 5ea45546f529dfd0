"""Surge pods: a round goes on although a pod of it was asked to go, while the next one of its rank makes itself ready. Pure.

The operator makes that one beside the old one, where a node has room, and says so with its next question for /status, and for
how long the old one's grace lets the gang wait. The surge pod says by the link that it is ready. Then the ranks save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.contract.rounds import SurgePod
    from oarlock_trainer.agent.rounds.model import Report

NOTICE_SECONDS = 5.0
"""What the operator gets to see that a pod was asked to go, to find room, and to say so. On two cores, with three nodes, it
takes one; of many nodes it reads the pods of 64."""


@dataclass(frozen=True, slots=True)
class Surging:
    """The surge pods that the operator has made, by its newest word. `at`: when that came, on the monotonic clock."""

    pods: tuple[SurgePod, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rank and incarnation of the surge pods that are ready, and wait for the pods before them to leave."""

    pods: frozenset[tuple[int, int]]


class Surge:
    """What rank 0's agent knows of them."""

    def __init__(self) -> None:
        self._told: Surging | None = None
        self._waiting: frozenset[tuple[int, int]] = frozenset()
        self._asked: dict[str, float] = {}
        """Agent of a pod that was asked to go -> when that was heard first."""

    def hear(self, news: Surging | Waiting) -> None:
        """Take in what the operator, or the link, says."""
        if isinstance(news, Surging):
            self._told = news
        else:
            self._waiting = news.pods

    def holds(self, leaving: Sequence[Report], now: float) -> bool:
        """Whether the round goes on for now, though these pods of it were asked to go.

        It ends once the next ones of all are ready, or one of them can wait no longer: ranks save together.
        """
        self._asked = {report.agent: self._asked.get(report.agent, now) for report in leaving}
        if self._told is None or not all(self._may_wait(report, now) for report in leaving):
            return False
        return not all(self._is_ready(report) for report in leaving)

    def _is_ready(self, report: Report) -> bool:
        return any(rank == report.rank and later > report.incarnation for rank, later in self._waiting)

    def _may_wait(self, report: Report, now: float) -> bool:
        if report.rank == 0 or self._told is None:
            return False  # members find its next pod by its name, which is one pod's alone
        made = [pod for pod in self._told.pods if pod.rank == report.rank and pod.incarnation > report.incarnation]
        if not made:
            return now - self._asked[report.agent] < NOTICE_SECONDS
        return now - self._told.at < max(pod.seconds for pod in made)
