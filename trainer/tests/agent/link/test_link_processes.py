"""Agents that are killed and frozen: links in processes of their own, and in this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gangs import HEARTBEAT, SHORT_SILENCE, Gang, time_of_silence

from oarlock_trainer.agent.link.protocol import PeerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    GangOf = Callable[..., Gang]

PROGRAM = Path(__file__).parent / "link_process.py"


class Process:
    """Links of some ranks, in a process."""

    def __init__(self, *ranks: int, nodes: int, port: int = 0, silence: float = SHORT_SILENCE) -> None:
        arguments = map(str, (port, HEARTBEAT, silence, nodes, *ranks))
        path = os.pathsep.join(str(Path(__file__).parents[depth] / name) for depth, name in ((0, ""), (2, "support")))
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.port: int = self.said()

    def said(self) -> Any:
        """The next thing that it says."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def leave(self, rank: int, code: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{rank} {code}\n".encode())
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def process_of() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def make(*ranks: int, **settings: Any) -> Process:
        processes.append(Process(*ranks, **settings))
        return processes[-1]

    yield make
    for process in processes:
        process.end()


def test_a_leader_that_is_killed_is_lost_to_all_members(gang_of: GangOf, process_of: Callable[..., Process]) -> None:
    leader = process_of(0, nodes=3)
    gang = gang_of(3, port=leader.port, silence=SHORT_SILENCE)
    gang.join_all()
    leader.process.kill()
    for rank in (1, 2):
        assert (gang.loss(rank).rank, gang.loss(rank).code) == (0, None)


def test_a_member_that_is_killed_is_lost_to_all_others(gang_of: GangOf, process_of: Callable[..., Process]) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join(1)
    member = process_of(2, nodes=3, port=gang.port)
    assert member.said() == "stands"
    gang.stand(1)
    member.process.kill()
    assert gang.loss(1) == gang.loss(0)
    assert (gang.loss(0).rank, gang.loss(0).code) == (2, None)


def test_a_frozen_member_is_lost_and_on_waking_hears_that_it_was_given_up(
    gang_of: GangOf, process_of: Callable[..., Process]
) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join(1)
    member = process_of(2, nodes=3, port=gang.port)
    assert member.said() == "stands"
    gang.stand(1)
    member.process.send_signal(signal.SIGSTOP)
    assert gang.loss(1) == gang.loss(0)
    assert (gang.loss(0).rank, gang.loss(0).code) == (2, None)
    member.process.send_signal(signal.SIGCONT)
    assert member.said() == [2, "PeerLost", 2, None, gang.loss(0).why]


def test_a_frozen_leader_blames_nobodys_silence_and_on_waking_hears_who_has_gone(
    gang_of: GangOf, process_of: Callable[..., Process]
) -> None:
    leader = process_of(0, nodes=2)
    gang = gang_of(2, port=leader.port, silence=SHORT_SILENCE)
    gang.join_all()
    leader.process.send_signal(signal.SIGSTOP)
    assert (gang.loss(1).rank, gang.loss(1).code) == (0, None)
    gang.links[1].leave(82, "rank 0's agent was silent")
    leader.process.send_signal(signal.SIGCONT)
    assert leader.said() == "stands"
    assert leader.said() == [0, "PeerLost", 1, 82, "rank 0's agent was silent"]


def test_a_pause_of_all_is_no_loss_to_anybody(gang_of: GangOf, process_of: Callable[..., Process]) -> None:
    silence = 0.3
    everybody = process_of(0, 1, 2, nodes=3, silence=silence)
    assert everybody.said() == "stands"
    everybody.process.send_signal(signal.SIGSTOP)
    time_of_silence(gang_of(2, silence=2 * silence))
    everybody.process.send_signal(signal.SIGCONT)
    time_of_silence(gang_of(2, silence=silence))
    everybody.leave(1, 83)
    # Had anybody been blamed, that would have been the first and only loss.
    said = [everybody.said() for _ in range(3)]
    assert "left" in said
    told = [0, "PeerLost", 1, 83, "asked to"]
    assert told in said or [2, *told[1:]] in said
    assert [line for line in said if line != "left" and line[2:] != told[2:]] == []


def test_a_word_before_the_kill_arrives(gang_of: GangOf, process_of: Callable[..., Process]) -> None:
    gang = gang_of(3)
    gang.join(1)
    member = process_of(2, nodes=3, port=gang.port)
    assert member.said() == "stands"
    gang.stand(1)
    member.leave(2, 81)
    assert member.said() == "left"
    member.process.kill()
    assert gang.loss(1) == gang.loss(0) == PeerLost(2, 81, "asked to")
