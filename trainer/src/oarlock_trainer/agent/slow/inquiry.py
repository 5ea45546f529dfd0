"""The way of a question: rank 0 calls a rank slow, its node's agent looks for ten seconds why, and both are told as one.

    rank 0 -> its agent -> (the gang link) -> the slow rank's agent: two looks -> (the gang link) -> rank 0's agent -> /status

Until then nobody reads anything. What does not answer in time is told without a cause.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oarlock_api.contract.status import Degradation
from oarlock_api.contract.wire import integer, text
from oarlock_trainer.agent.link.protocol import Answer, Ask, Topic
from oarlock_trainer.agent.slow.counts import counts
from oarlock_trainer.agent.slow.why import why
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.agent.gpus.gpu_guard import GpuGuard
    from oarlock_trainer.agent.link.gang_link import GangLink
    from oarlock_trainer.agent.slow.counts import Counts
    from oarlock_trainer.agent.status.status_board import StatusBoard
    from oarlock_trainer.runtime.channel import Message

LOOK_SECONDS = 10.0
"""Between the two looks."""
ANSWER_SECONDS = 20.0
"""What the slow rank's agent gets."""
_NO_ANSWER = (
    "its agent has not said why: look at the clocks of its GPU, its pod's CPU limit, and what else runs on its node"
)


class SlowRankInquiry:
    """Of one agent; rank 0's asks, each may be asked. Only the main thread may use it."""

    def __init__(
        self,
        *,
        pod: int,
        gpus_per_pod: int,
        board: StatusBoard,
        link: GangLink,
        gpus: GpuGuard,
        look: Callable[[int | None], Counts] = counts,
    ) -> None:
        """`pod` is the rank of this agent's pod; on the CPU it has 0 GPUs."""
        self._own, self._gpus_per_pod = pod, gpus_per_pod
        self._board, self._link, self._gpus, self._look = board, link, gpus, look
        self._pids: dict[int, int] = {}
        self._said, self._pod = "", 0
        """What rank 0 says, and of which pod, while its cause is looked for."""
        self._rank = -1
        """Whose cause is looked for, by whomever."""
        self._deadline = math.inf
        self._first: Counts | None = None

    def hear(self, message: Message, now: float) -> bool:
        """Take what is this one's to tell: then True."""
        fields = message.fields
        if message.event == HostEvent.STARTED and (pid := integer(fields.get("pid"))):
            self._pids[message.rank] = pid
        if message.event != Event.DEGRADED or fields.get("reason") != Degradation.SLOW_RANK or self._own != 0:
            return False
        self._said, self._pod = text(fields.get("message"), 512), integer(fields.get("pod")) or 0
        before, self._rank = self._rank, integer(fields.get("slowRank")) or 0
        self._first, self._deadline = None, math.inf
        if not self._said or self._rank != before:
            # That one is over, whatever will be found of the next: nobody is to leave its node now.
            self._board.slow_rank("", None)
        if not self._said:
            return True
        if self._pod == self._own:
            self._begin(now)
        else:
            self._deadline = now + ANSWER_SECONDS
            self._link.ask(Ask(Topic.SLOWNESS, str(self._rank)), self._pod)
        return True

    def asked(self, question: Ask, now: float) -> None:
        """Rank 0's agent asks why a rank of this node is slow."""
        if question.name.isdecimal():
            self._rank = int(question.name)
            self._begin(now)

    def answered(self, answer: Answer) -> None:
        """The slow rank's agent has looked."""
        if self._said and answer.name == str(self._rank):
            self._tell(answer.words or _NO_ANSWER)

    def forget(self) -> None:
        """The ranks are gone, and with them what was looked for."""
        self._said, self._rank, self._first, self._deadline = "", -1, None, math.inf

    def advance(self, now: float) -> None:
        """Take the second look when it is due; do without an answer that does not come."""
        if now < self._deadline:
            return
        self._deadline, first = math.inf, self._first
        if first is None:
            self._tell(_NO_ANSWER)
            return
        self._first = None
        place = self._rank % self._gpus_per_pod if self._gpus_per_pod else None
        # A rank has the GPU of its place among the pod's, whichever place the pod has among others. A GPU that NVML does
        # not show would shift those behind it.
        pace = self._gpus.pace if len(self._gpus.pace) == self._gpus_per_pod else ()
        words = why(first, self._look(self._pids.get(self._rank)), pace, gpu=place)
        if self._own == 0:
            self._tell(words)
        else:
            self._link.answer(Answer(Topic.SLOWNESS, str(self._rank), words))

    def _begin(self, now: float) -> None:
        self._first, self._deadline = self._look(self._pids.get(self._rank)), now + LOOK_SECONDS
        self._gpus.ask_pace()

    def _tell(self, words: str) -> None:
        self._board.slow_rank(f"{self._said}. {words[:1].upper()}{words[1:]}", self._pod)
        self._said, self._deadline = "", math.inf
