"""The collective check through whole agents: two pods of one gang, with real ranks over gloo."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import Agent

from oarlock_local.patience import eventually
from oarlock_trainer.preflight.checks import Preflight
from oarlock_trainer.runtime.assignment import read_assignment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAINING = {
    "model": {"family": "Flux1", "path": "/models/flux"},
    "steps": 1,
    "data": {"datasets": [{"name": "photos", "source": {"path": "/photos"}}]},
}


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list[Agent]]:
    """Two pods of two ranks each, not started."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    agents = []
    for rank in range(2):
        (tmp_path / f"pod-{rank}").mkdir()
        agent = Agent(tmp_path / f"pod-{rank}")
        agent.job["training"] = TRAINING
        agent.job["preflight"]["collective"] = True
        agent.environment |= {
            "MACHINE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OARLOCK_NODE": f"gpu-0{rank}", "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        agents.append(agent)
    yield agents
    for agent in agents:
        agent.end()


def start(agent: Agent) -> None:
    agent.start("collective_programs:joins", warm="collective_programs:imports_torch")


def check_of(status: dict[str, Any]) -> dict[str, Any]:
    return next(check for check in status["preflight"] if check["name"] == "collective")


def ended_check_of(status: dict[str, Any]) -> dict[str, Any] | None:
    check = check_of(status)
    return check if check["result"] != "Running" else None


@pytest.mark.deep
def test_every_pod_shows_the_milliseconds_of_each_node_in_status_and_log(pods: list[Agent]) -> None:
    start(pods[0])
    eventually(lambda: pods[0].status()["phase"] == "Starting", "the first pod's ranks")
    assert check_of(pods[0].status())["result"] == "Running"
    start(pods[1])
    for agent in pods:
        agent.awaited(f"rank-{0 if agent is pods[0] else 2}")
        check = eventually(lambda agent=agent: ended_check_of(agent.status()), "the check's end")
        assert check["result"] == "Passed"
        assert "over 4 ranks of 2 nodes in" in check["detail"]
        assert "node 1 (gpu-01) " in check["detail"]
        (network,) = [one for one in agent.status()["preflight"] if one["name"] == "network"]
        assert "InfiniBand" in network["detail"]
        (logged,) = [line for line in agent.log() if line.get("check") == "collective"]
        assert (logged["milliseconds"], logged["message"]) == (check["milliseconds"], check["detail"])
    for agent in pods:
        agent.mark("finish")
    assert [agent.wait() for agent in pods] == [0, 0]


@pytest.mark.deep
def test_a_pod_whose_peer_never_comes_ends_with_82_once_it_has_waited_as_long_as_pods_may_be_apart(
    pods: list[Agent],
) -> None:
    alone = pods[0]
    alone.job["preflight"]["timeoutSeconds"] = 2
    alone.start("collective_programs:joins_soon_or_never", warm="collective_programs:imports_torch")
    assert alone.wait() == 82
    assert "node 1 did not come to the collective check within" in alone.report()["summary"]
    (logged,) = [line for line in alone.log() if line.get("check") == "collective"]
    assert (logged["result"], logged["level"]) == ("Failed", "error")


def test_what_imports_and_other_checks_have_taken_leaves_the_ranks_no_less_time(tmp_path: Path) -> None:
    job = {
        **Agent(tmp_path).job,
        "gpus_per_node": 0,
        "preflight": {"storage": False, "clock": False, "timeoutSeconds": 10},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    assignment = read_assignment({"OARLOCK_CONFIG": str(path), "MACHINE_RANK": "0"})
    begun_long_ago = Preflight(assignment, {}, collective=True, torch_cuda="", now=time.monotonic() - 60)
    assert begun_long_ago.rank_seconds == 10


def test_a_pod_that_takes_a_lost_ones_place_does_no_check_that_the_others_have_done_without_it(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    checked = {"preflight": {"storage": False, "clock": False}, "spares": 1}
    path.write_text(json.dumps(Agent(tmp_path).job | checked))
    for later in ({"MACHINE_RANK": "1", "OARLOCK_INCARNATION": "2"}, {"MACHINE_RANK": "2"}):
        assignment = read_assignment({"OARLOCK_CONFIG": str(path), **later})
        preflight = Preflight(assignment, {}, collective=True, torch_cuda="", now=0.0)
        assert preflight.rank_seconds is None
        assert "collective" not in preflight.expected


def test_a_job_that_does_not_ask_for_it_has_none(agent: Agent) -> None:
    agent.job["nodes"] = 1
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    assert "collective" not in agent.log_path.read_text()
