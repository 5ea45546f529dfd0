"""A real agent that obeys orders of rounds whose pods are chosen: its leader here is the test."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import nvml_library
import pytest
from agent_process import Agent, free_port, lives

from oarlock_api.contract.gang_key import attempt_key
from oarlock_local import nvml
from oarlock_local.patience import eventually
from oarlock_trainer.agent.link.gang_link import GangLink
from oarlock_trainer.agent.link.protocol import MissedPod
from oarlock_trainer.agent.link.round_frames import Ordered
from oarlock_trainer.agent.rounds.model import Order, Place, Report, Round, Wanted
from oarlock_trainer.agent.rounds.surge import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


KEY = "ab" * 32
ORDER_SECONDS = 0.6
"""What this leader gets to have the ranks save of a pod that was asked to go, where a test waits for that."""
ORDERS_SOON = {"oarlock_trainer.agent.supervise:_ORDER_SECONDS": ORDER_SECONDS}


class Leader:
    """Rank 0's end of the link of two nodes and a spare, and what it orders one pod."""

    def __init__(self, port: int) -> None:
        key = attempt_key(bytes.fromhex(KEY), "uid-of-job", 3)
        self._link = GangLink(
            job_uid="uid-of-job",
            attempt=3,
            rank=0,
            nodes=3,
            leader="",
            port=port,
            key=key,
            replaces=True,
            chooses=True,
        )
        self._link._loop.forget_newest = lambda _rank: None  # type: ignore[union-attr,method-assign] # it is of interest here
        self.report: Report | None = None
        self.lost: MissedPod | None = None
        self._waiting: frozenset[tuple[int, int]] = frozenset()

    @property
    def waiting(self) -> frozenset[tuple[int, int]]:
        """Rank and incarnation of the surge pods that wait."""
        self._hear()
        return self._waiting

    def _hear(self) -> None:
        for news in self._link.news():
            if isinstance(news, Report):
                self.report = news
            elif isinstance(news, MissedPod):
                self.lost = news
            elif isinstance(news, Waiting):
                self._waiting = news.pods

    def order(self, number: int, wanted: Wanted, *members: int, to: int, holds: bool = False) -> None:
        """Of the first round members are not told."""
        places = tuple(Place(rank, "") for rank in members)
        heard = self.report.sequence if self.report else 0
        code = 86 if wanted is Wanted.YIELD else 0
        told = Order(Round(1, number), wanted, places, code=code, why="a pod is back", holds=holds)
        self._link.order(lambda _rank: Ordered(told, yours=not members or to in members, heard=heard))

    def until(self, fact: Callable[[Report], bool], what: str) -> Report:
        def told() -> Report | None:
            self._hear()
            return self.report if self.report and fact(self.report) else None

        found: Report = eventually(told, what)
        return found

    def leave(self, code: int) -> None:
        self._link.leave(code, "")


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[tuple[Leader, Callable[[int], Agent]]]:
    """The leader, and what makes the agent of another pod."""
    port, made = free_port(), []
    leader = Leader(port)

    def pod(rank: int) -> Agent:
        agent = Agent(tmp_path)
        agent.job |= {"spares": 1, "recovery": {"inPlace": "Auto", "standbySeconds": 300}}
        agent.job["ports"]["link"] = port
        (agent.scratch / "key").write_text(KEY)
        agent.environment |= {"MACHINE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "OARLOCK_REPLACES_PODS": "1"}
        made.append(agent)
        return agent

    yield leader, pod
    for agent in made:
        agent.end()
    leader.leave(0)


def ranks_of(agent: Agent, *numbers: int) -> list[int]:
    return [agent.rank_pid(number) for number in numbers]


def two_gpus(agent: Agent, folder: Path) -> nvml.Control:
    """A pretended driver of its pod."""
    agent.environment["NVML_LIBRARY"] = str(nvml_library.build(folder))
    control = nvml.Control(folder)
    control.set("gpus=2")
    return control


def asked_to_yield(leader: Leader, agent: Agent, program: str) -> list[int]:
    """Its ranks, which run, and are asked to save and to end."""
    agent.start(program)
    ranks = ranks_of(agent, 2, 3)
    leader.until(lambda report: report.running, "that its ranks run")
    leader.order(1, Wanted.YIELD, to=1)
    return ranks


def test_ranks_that_are_to_yield_save_and_end_and_their_pod_has_no_fault_and_starts_the_next_round(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, agent = pods[0], pods[1](1)
    agent.altered |= ORDERS_SOON
    before = asked_to_yield(leader, agent, "saves_when_asked")
    report = leader.until(lambda report: not report.running, "that none is left")
    assert report.fault is None
    assert not any(map(lives, before))
    agent.awaited("saved-2")
    agent.awaited("saved-3")
    leader.order(2, Wanted.TRAIN, 0, 1, to=1)
    eventually(lambda: not set(ranks_of(agent, 2, 3)) & set(before), "ranks of the next round")
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86


def test_a_rank_that_fails_while_it_is_to_yield_is_a_fault_as_ever(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, agent = pods[0], pods[1](1)
    before = asked_to_yield(leader, agent, "never_leaves")
    agent.awaited("asked-2")
    os.kill(before[0], signal.SIGKILL)
    report = leader.until(lambda report: not report.running, "that none is left")
    assert report.fault
    assert report.fault.code == 137


@pytest.mark.deep
def test_a_pod_that_is_told_to_go_while_its_ranks_yield_goes_once_they_have_saved(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, agent = pods[0], pods[1](1)
    asked_to_yield(leader, agent, "saves_when_told_to_finish")
    agent.awaited("asked-2")
    agent.awaited("asked-3")
    agent.send(signal.SIGTERM)
    leader.until(lambda report: report.leaving, "that it leaves")
    agent.mark("finish")
    leader.until(lambda report: not report.running, "that none of its ranks is left")
    assert agent.status()["phase"], "it waits for the others"
    leader.order(1, Wanted.STAND_BY, to=1)
    assert agent.wait() == 86
    assert "left on request" in agent.report()["summary"]


def test_a_pod_that_is_told_to_go_trains_on_while_its_leader_holds_the_round_for_the_next_one(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, agent = pods[0], pods[1](1)
    agent.altered |= ORDERS_SOON
    agent.start("saves_when_asked")
    ranks = ranks_of(agent, 2, 3)
    leader.until(lambda report: report.running, "that its ranks run")
    agent.send(signal.SIGTERM)
    leader.until(lambda report: report.leaving, "that it leaves")
    leader.order(1, Wanted.TRAIN, to=1, holds=True)
    eventually(lambda: "trains on until the next pod" in (agent.status()["message"] or ""), "it says so")
    time.sleep(1.5 * ORDER_SECONDS)
    assert all(map(lives, ranks)), "it knows that its leader has heard"
    assert not (agent.scratch / "saved-2").exists()
    leader.order(1, Wanted.YIELD, to=1)
    leader.until(lambda report: not report.running, "that none of its ranks is left")
    agent.awaited("saved-2")
    leader.order(1, Wanted.STAND_BY, to=1)
    assert agent.wait() == 86


def test_a_surge_pod_is_ready_while_the_one_before_trains_and_has_its_place_once_that_one_has_left(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, old, new = pods[0], pods[1](1), pods[1](1)
    new.environment |= {"OARLOCK_INCARNATION": "2", "OARLOCK_SURGE": "1"}
    before = asked_to_yield(leader, old, "saves_when_told_to_finish")
    new.start("never_leaves")
    eventually(lambda: leader.waiting == {(1, 2)}, "that it waits")
    assert leader.report
    assert leader.report.incarnation == 1
    assert all(map(lives, before))
    assert new.status()["phase"] == "Standby"
    old.send(signal.SIGTERM)
    old.mark("finish")
    leader.until(lambda report: not report.running, "that none of the old one's ranks is left")
    leader.order(1, Wanted.STAND_BY, to=1)
    assert old.wait() == 86
    report = leader.until(lambda report: report.incarnation == 2 and report.able, "the new one")
    assert (report.running, report.follows_the_dead) == (False, False)
    leader.order(2, Wanted.TRAIN, 0, 1, to=1)
    assert leader.until(lambda report: report.running, "that its ranks run").round == Round(1, 2)
    eventually(lambda: all(map(lives, ranks_of(new, 2, 3))), "its ranks")


@pytest.mark.deep
def test_a_surge_pod_that_is_asked_to_go_leaves_at_once(pods: tuple[Leader, Callable[[int], Agent]]) -> None:
    leader, old, new = pods[0], pods[1](1), pods[1](1)
    new.environment |= {"OARLOCK_INCARNATION": "2", "OARLOCK_SURGE": "1"}
    asked_to_yield(leader, old, "never_leaves")
    new.start("trains_until_told")
    eventually(lambda: leader.waiting == {(1, 2)}, "that it waits")
    new.send(signal.SIGTERM)
    assert new.wait() == 86
    eventually(lambda: leader.waiting == set(), "that it waits no more")
    assert leader.lost is None


def test_a_pod_that_the_gang_goes_on_without_stands_by_and_is_done_when_the_gang_is(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, agent = pods[0], pods[1](1)
    agent.start("trains_until_told")
    ranks = ranks_of(agent, 2, 3)
    os.kill(ranks[0], signal.SIGKILL)
    leader.until(lambda report: report.fault is not None and not report.running, "its fault")
    leader.order(2, Wanted.TRAIN, 0, 2, to=1)
    eventually(lambda: "trains without this pod" in agent.status()["message"], "it stands by")
    assert not any(map(lives, ranks))
    leader.leave(0)
    assert agent.wait() == 0


def test_a_spare_starts_no_ranks_before_it_has_a_place_and_its_ranks_count_by_that(
    pods: tuple[Leader, Callable[[int], Agent]],
) -> None:
    leader, agent = pods[0], pods[1](2)
    agent.start("trains_until_told")
    report = leader.until(lambda report: report.able, "that it is able")
    assert (report.running, report.round) == (False, Round(0, 0))
    leader.order(1, Wanted.TRAIN, to=1)
    leader.order(2, Wanted.TRAIN, 0, 2, to=2)
    ranks = ranks_of(agent, 2, 3)
    assert leader.until(lambda report: report.running, "that its ranks run").round == Round(1, 2)
    assert all(map(lives, ranks))
    eventually(lambda: agent.status()["step"] == 101, "its first rank's progress")
    agent.mark("finish")
    assert agent.wait() == 0


def test_a_spare_that_is_asked_to_go_leaves_at_once(pods: tuple[Leader, Callable[[int], Agent]]) -> None:
    leader, agent = pods[0], pods[1](2)
    agent.start("trains_until_told")
    leader.until(lambda report: report.able, "that it is able")
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert agent.report()["summary"] == "SIGTERM while the gang trains without this pod"


def test_a_pod_whose_gpu_is_lost_says_why_and_leaves_once_its_ranks_are_gone(
    pods: tuple[Leader, Callable[[int], Agent]], tmp_path: Path
) -> None:
    leader, agent = pods[0], pods[1](1)
    gpus = two_gpus(agent, tmp_path)
    agent.start("trains_until_told")
    ranks = ranks_of(agent, 2, 3)
    eventually(lambda: agent.status()["health"]["state"] == "Healthy", "the GPUs are watched")
    leader.until(lambda report: report.running, "that its ranks run")
    gpus.inject(gpu=1, xid=79)
    report = leader.until(lambda _: leader.lost is not None, "that it leaves")
    assert leader.lost
    assert (leader.lost.code, leader.lost.over) == (80, True)
    assert not any(map(lives, ranks))
    assert report.fault, "told before"
    assert (report.fault.code, report.running) == (80, True)
    assert agent.wait() == 80


def test_a_pod_whose_gpu_is_lost_while_it_waits_leaves_and_ends_no_round(
    pods: tuple[Leader, Callable[[int], Agent]], tmp_path: Path
) -> None:
    leader, agent = pods[0], pods[1](2)
    gpus = two_gpus(agent, tmp_path)
    agent.start("trains_until_told")
    leader.until(lambda report: report.able, "that it is able")
    eventually(lambda: agent.status()["health"]["state"] == "Healthy", "the GPUs are watched")
    gpus.inject(gpu=1, xid=79)
    report = leader.until(lambda _: leader.lost is not None, "that it leaves")
    assert report.fault is None
    assert agent.wait() == 80
