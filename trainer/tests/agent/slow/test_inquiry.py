"""A slow rank is told with its cause: looked for on its own node, only then, and not for ever."""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.status import Degradation
from oarlock_trainer.agent.link.protocol import Answer, Ask, Topic
from oarlock_trainer.agent.slow.counts import Counts
from oarlock_trainer.agent.slow.inquiry import ANSWER_SECONDS, LOOK_SECONDS, SlowRankInquiry
from oarlock_trainer.agent.status.status_board import StatusBoard
from oarlock_trainer.health.pace import GpuPace
from oarlock_trainer.ranks.rank_host import HostEvent
from oarlock_trainer.runtime.assignment import Pod
from oarlock_trainer.runtime.channel import Event, Message

SLOW = {"reason": Degradation.SLOW_RANK, "message": "rank 3, in pod 1 of the gang, is slow", "slowRank": 3, "pod": 1}
QUESTION = Ask(Topic.SLOWNESS, "3")


class Agent:
    """The agent of a pod with two ranks: what it says over the link, and which processes it looked at."""

    def __init__(self, rank: int, *, gpus: int = 0) -> None:
        pod = Pod(job="flux", pod_uid="p", node="n", rank=rank, attempt=1)
        self.board = StatusBoard(pod, job_uid="u", ranks_per_pod=2, clock=lambda: "now")
        self.said: list[Any] = []
        self.looked: list[int | None] = []
        self.pace: tuple[GpuPace, ...] = ()
        parts = {"board": self.board, "link": self, "gpus": self, "look": self._look}
        self.inquiry = SlowRankInquiry(pod=rank, gpus_per_pod=gpus, **parts)
        for local in range(2):
            self.inquiry.hear(Message(HostEvent.STARTED, 2 * rank + local, {"pid": 70 + 2 * rank + local}), 0.0)

    def ask(self, question: Ask, only: int | None = None) -> None:
        self.said.append((question, only))

    def answer(self, answer: Answer) -> None:
        self.said.append(answer)

    def ask_pace(self) -> None:
        """No GPUs."""

    def _look(self, pid: int | None) -> Counts:
        self.looked.append(pid)
        return Counts(at=100.0 + 10.0 * len(self.looked), waited=4.0 * len(self.looked))

    def told(self, **fields: Any) -> bool:
        return self.inquiry.hear(Message(Event.DEGRADED, 0, fields), 0.0)

    @property
    def shown(self) -> tuple[str, int | None]:
        status = self.board.status
        return status.degraded.get(Degradation.SLOW_RANK, ""), status.slow_pod


def test_the_slow_ranks_own_agent_looks_twice_and_rank_0s_tells_both_as_one_sentence() -> None:
    leader, member = Agent(0), Agent(1)
    assert leader.told(**SLOW)
    assert leader.said == [(QUESTION, 1)], "that agent alone is asked"
    assert leader.looked == [], "its own ranks are not in question"
    assert leader.shown == ("", None), "the Event is to have the cause"
    member.inquiry.asked(QUESTION, 5.0)
    member.inquiry.advance(5.0 + LOOK_SECONDS - 0.1)
    assert member.looked == [73]
    member.inquiry.advance(5.0 + LOOK_SECONDS)
    (answer,) = member.said
    leader.inquiry.answered(answer)
    cause = "CPU share: for 40% of the time it was ready to run and had no processor"
    assert leader.shown == (f"{SLOW['message']}. {cause}", 1)
    for agent in (leader, member):
        agent.inquiry.advance(1e6)
    assert (leader.looked, member.looked) == ([], [73, 73]), "once"


def test_another_rank_that_is_slow_instead_ends_what_was_told_of_the_first() -> None:
    leader = Agent(0)
    leader.told(**SLOW)
    leader.inquiry.answered(Answer(Topic.SLOWNESS, "3", "CPU share"))
    assert leader.shown[1] == 1
    leader.told(**SLOW)
    assert leader.shown[1] == 1, "of the same rank it stands until there is more to say"
    leader.told(**SLOW | {"slowRank": 1, "pod": 0})
    assert leader.shown == ("", None), "nobody leaves the first one's node now"
    leader.inquiry.advance(LOOK_SECONDS)
    assert leader.shown[1] == 0


def test_no_clocks_are_told_where_a_gpu_of_the_pod_is_not_seen() -> None:
    first, third = GpuPace(index=0, clock=1980), GpuPace(index=2, clock=1155, slowed_by=("hw_thermal_slowdown",))
    leader = Agent(0, gpus=3)
    leader.pace = (first, third)
    leader.told(**SLOW | {"slowRank": 1, "pod": 0})
    leader.inquiry.advance(LOOK_SECONDS)
    assert "GPU" not in leader.shown[0], "the second one's are not known, and the third one's are not its own"
    leader.pace = (first, GpuPace(index=1, clock=1200), third)
    leader.told(**SLOW | {"slowRank": 1, "pod": 0})
    leader.inquiry.advance(LOOK_SECONDS)
    assert "GPU 1 runs at 1200 MHz" in leader.shown[0]


def test_a_slow_rank_of_rank_0s_own_pod_needs_no_link() -> None:
    leader = Agent(0)
    leader.told(**SLOW | {"slowRank": 1, "pod": 0})
    leader.inquiry.advance(LOOK_SECONDS)
    assert (leader.looked, leader.said, leader.shown[1]) == ([71, 71], [], 0)


def test_an_agent_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    leader = Agent(0)
    leader.told(**SLOW)
    leader.inquiry.advance(ANSWER_SECONDS)
    assert leader.shown[0].startswith(f"{SLOW['message']}. Its agent has not said why")
    leader.inquiry.answered(Answer(Topic.SLOWNESS, "3", "too late"))
    assert "too late" not in leader.shown[0]


def test_what_is_over_is_over_though_its_cause_comes_later() -> None:
    leader = Agent(0)
    leader.told(**SLOW)
    leader.told(reason=Degradation.SLOW_RANK, message="")
    leader.inquiry.answered(Answer(Topic.SLOWNESS, "3", "CPU share"))
    leader.inquiry.advance(1e6)
    assert leader.shown == ("", None)


def test_other_news_is_none_of_its_business_and_nobody_looks_without_a_slow_rank() -> None:
    leader = Agent(0)
    assert not leader.told(reason=Degradation.SLOW_NETWORK, message="NCCL takes TCP")
    leader.inquiry.advance(1e6)
    assert leader.looked == []
