"""Real agents whose ranks start anew inside them: what new processes may mend ends no pod."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import Agent, lives, pair

from oarlock_api.contract.history import read_story
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.checkpoint.memory.held import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def in_place(agent: Agent) -> Agent:
    agent.job["recovery"] = {"inPlace": "Auto"}
    agent.environment["OARLOCK_BACKOFF"] = "0 0"  # what a gang waits otherwise: test_rounds_backoff.py
    return agent


@pytest.fixture
def lone(agent: Agent) -> Agent:
    """One node with two ranks."""
    agent.job["nodes"] = 1
    return in_place(agent)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[list[Agent]]:
    """Two nodes, each with two ranks."""
    agents = [in_place(agent) for agent in pair(tmp_path)]
    yield agents
    for agent in agents:
        agent.end()


def linked(gang: list[Agent], program: str = "trains_until_told") -> list[int]:
    """Start all, wait until their ranks run and the link stands; the ranks' pids."""
    for agent in gang:
        agent.start(program)
    stands = "the gang link to pod 0 stands"
    eventually(lambda: any(line.get("message") == stands for line in gang[-1].log()), stands)
    return [agent.rank_pid(2 * node + local) for node, agent in enumerate(gang) for local in range(2)]


def in_round(agent: Agent, number: int) -> dict[str, Any]:
    """The agent's status once that round's first rank trains."""

    def trains() -> dict[str, Any] | None:
        status = agent.status()
        return status if status.get("round") == number and status["step"] is not None else None

    found: dict[str, Any] = eventually(trains, f"a step of round {number}")
    return found


def renewed(agents: list[Agent], before: list[int]) -> list[int]:
    """The pids of all ranks, once none is of those before."""

    def pids() -> list[int]:
        now = [agent.rank_pid(2 * node + local) for node, agent in enumerate(agents) for local in range(2)]
        return now if not set(now) & set(before) else []

    found: list[int] = eventually(pids, "ranks that are new")
    return found


def test_a_rank_that_is_killed_costs_its_pod_nothing_but_its_ranks(lone: Agent) -> None:
    before = linked_alone(lone)
    os.kill(before[0], signal.SIGKILL)
    status = in_round(lone, 2)
    (end,) = status["rounds"]
    assert (end["number"], end["rank"], end["code"], end["step"]) == (1, 0, 137, 101)
    assert "rank 0 was killed by SIGKILL" in end["why"]
    renewed([lone], before)
    assert not any(map(lives, before))
    lone.mark("finish")
    assert lone.wait() == 0


def linked_alone(agent: Agent) -> list[int]:
    agent.start("trains_until_told")
    eventually(lambda: agent.status()["checkpoint"], "a checkpoint")
    return [agent.rank_pid(0), agent.rank_pid(1)]


@pytest.mark.parametrize("victim", quick_first([0, 1]), ids=["of rank 0's node", "of another node"])
def test_a_rank_that_is_killed_starts_all_ranks_of_the_gang_anew(gang: list[Agent], victim: int) -> None:
    before = linked(gang)
    os.kill(before[2 * victim + 1], signal.SIGKILL)
    (end,) = in_round(gang[0], 2)["rounds"]
    assert (end["rank"], end["code"]) == (victim, 137)
    renewed(gang, before)
    assert not any(map(lives, before))
    for agent in gang:
        agent.mark("finish")
    assert [agent.wait() for agent in gang] == [0, 0]


def test_books_and_history_say_what_the_next_round_began_with_and_how_long_it_took(lone: Agent) -> None:
    before = linked_alone(lone)
    os.kill(before[0], signal.SIGKILL)
    (end,) = eventually(
        lambda: [end for end in lone.status().get("rounds", ()) if end["downSeconds"] is not None],
        "a step of the next round",
    )
    assert end["resumedStep"] == 100
    assert 0 < end["startWaitSeconds"] < end["downSeconds"]
    assert "fromMemory" not in end
    lone.mark("finish")
    assert lone.wait() == 0
    ended, restarted = (line for line in read_story(lone.output) if line.type in {"RoundEnded", "RanksRestarted"})
    assert (ended.message, ended.data["code"]) == (end["why"], 137)
    assert restarted.data == {name: end[name] for name in ("downSeconds", "startWaitSeconds")} | {
        "round": 1,
        "step": 100,
    }


def test_rounds_that_finish_no_further_step_end_in_the_pods_end_with_the_last_reason(lone: Agent) -> None:
    lone.start("first_rank_is_killed")
    assert lone.wait() == 137
    report = lone.report()
    assert report["summary"].startswith("3 rounds in a row finished no step; the last: rank 0 was killed by SIG")
    assert len([line for line in lone.log() if str(line.get("message")).startswith("round ")]) == 2


@pytest.fixture
def remembering(lone: Agent) -> Iterator[Agent]:
    lone.job["recovery"] |= {"memory": {"everySteps": "1"}}
    lone.job["job_uid"] = f"uid-{uuid.uuid4()}"  # /dev/shm is shared by all tests
    yield lone
    lone.end()
    shutil.rmtree(folder_of(lone.job["job_uid"], lone.job["attempt"]), ignore_errors=True)


def test_what_an_earlier_attempt_left_in_memory_is_gone_once_the_next_one_trains(remembering: Agent) -> None:
    left = folder_of(remembering.job["job_uid"], remembering.job["attempt"] - 1)
    left.mkdir()
    remembering.start("keeps_its_state")
    remembering.rank_pid(0)
    assert not left.exists()


def test_ranks_that_start_anew_are_told_the_newest_step_that_all_of_them_have_in_memory(remembering: Agent) -> None:
    remembering.start("keeps_its_state")
    before = [remembering.rank_pid(0), remembering.rank_pid(1)]
    os.kill(before[1], signal.SIGKILL)
    in_round(remembering, 2)
    (end,) = eventually(
        lambda: [end for end in remembering.status().get("rounds", ()) if end["downSeconds"] is not None],
        "a step of the next round",
    )
    assert (end["resumedStep"], end["fromMemory"]) == (1, True)


def test_what_the_job_itself_does_wrong_ends_the_pod_at_once(lone: Agent) -> None:
    lone.start("culprit_after_its_victim")
    assert lone.wait() == 85
    assert lone.report()["firstErrorRank"] == 1


@pytest.mark.deep
def test_sigterm_ends_a_gang_whose_ranks_started_anew_as_any_other(lone: Agent) -> None:
    lone.start("saves_when_asked")
    before = [lone.rank_pid(0), lone.rank_pid(1)]
    os.kill(before[0], signal.SIGKILL)
    renewed([lone], before)
    lone.send(signal.SIGTERM)
    assert lone.wait() == 86


@pytest.mark.deep
def test_the_pace_of_one_round_is_not_held_against_the_first_step_of_the_next(lone: Agent) -> None:
    """State is loaded and code compiled once more; a program that may tell of no step is judged by none before its first."""
    lone.start("comes_up_slowly_in_round_2")
    before = [lone.rank_pid(0), lone.rank_pid(1)]
    eventually(lambda: lone.status()["hangAfterSeconds"] == 60, "its steps are watched")
    os.kill(before[0], signal.SIGKILL)
    renewed([lone], before)
    eventually(lambda: (seen := lone.status()).get("round") == 2 and seen["hangAfterSeconds"] is None, "round 2")
    lone.mark("finish")
    assert lone.wait() == 0


def host_of(rank: int) -> int:
    """The process that a rank was forked from."""
    return int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.deep
def test_a_pod_that_is_told_to_go_while_the_gang_stands_by_leaves_at_once_and_the_others_with_it(
    gang: list[Agent],
) -> None:
    ranks = linked(gang)
    os.kill(host_of(ranks[2]), signal.SIGSTOP)  # node 1's ranks are not cleared: the gang stands by
    os.kill(ranks[0], signal.SIGKILL)
    for agent in gang:
        eventually(lambda agent=agent: agent.status()["message"] == "the ranks start anew", "it stands by")
    gang[1].send(signal.SIGTERM)
    assert [agent.wait() for agent in gang] == [137, 86]
    assert gang[1].report()["summary"] == "SIGTERM while the gang starts its ranks anew"


@pytest.mark.deep
def test_what_is_asked_for_while_the_gang_stands_by_is_done_once_it_trains(gang: list[Agent]) -> None:
    ranks = linked(gang)
    host = host_of(ranks[2])
    os.kill(host, signal.SIGSTOP)
    os.kill(ranks[0], signal.SIGKILL)
    eventually(lambda: gang[0].status()["message"] == "the ranks start anew", "it stands by")
    gang[0].get("/status?request=stacks.one")
    assert gang[0].status().get("request") is None
    os.kill(host, signal.SIGCONT)
    in_round(gang[0], 2)
    answered = eventually(
        lambda: (said := gang[0].status()["request"]) and said["state"] == "Done" and said, "stacks of round 2"
    )
    assert "2 of 2 pods" in answered["message"]


@pytest.mark.deep
def test_an_agent_that_vanishes_still_ends_the_gang(gang: list[Agent]) -> None:
    linked(gang)
    gang[1].send(signal.SIGKILL)
    assert gang[0].wait() == 82


@pytest.mark.deep
def test_a_storage_that_fails_ends_the_gang(gang: list[Agent]) -> None:
    linked(gang, "storage_fails_when_told")
    gang[1].mark("fail")
    assert [agent.wait() for agent in gang] == [82, 84]


def test_a_rank_that_hangs_is_killed_with_its_gang_and_its_stacks_are_kept(lone: Agent) -> None:
    lone.altered = {"oarlock_trainer.agent.supervise:_TICK_SECONDS": 0.1}
    lone.job["recovery"] |= {"hangSeconds": 1}
    lone.start("hangs_in_round_1")
    (end,) = in_round(lone, 2)["rounds"]
    assert end["code"] == 83


@pytest.mark.deep
def test_each_fault_is_a_round_of_its_own_whichever_node_has_it(gang: list[Agent]) -> None:
    before = linked(gang)
    for number, victim in enumerate((3, 0), start=2):
        os.kill(before[victim], signal.SIGKILL)
        end = eventually(
            lambda number=number: [
                end
                for end in gang[0].status().get("rounds", ())
                if end["number"] == number - 1 and end["downSeconds"] is not None
            ],
            f"a step of round {number}",
        )[0]
        assert end["rank"] == victim // 2
        before = renewed(gang, before)


@pytest.mark.deep
def test_a_pod_that_stands_by_ends_for_its_own_reason_when_the_others_are_done(gang: list[Agent]) -> None:
    ranks = linked(gang)
    gang[0].send(signal.SIGSTOP)  # it hears of no fault until its own ranks are done
    os.kill(ranks[2], signal.SIGKILL)
    eventually(lambda: not any(map(lives, ranks[2:])), "the end of the other rank")
    gang[0].mark("finish")
    eventually(lambda: not any(map(lives, ranks[:2])), "the end of rank 0's")
    gang[0].send(signal.SIGCONT)
    assert [agent.wait() for agent in gang] == [0, 137]
