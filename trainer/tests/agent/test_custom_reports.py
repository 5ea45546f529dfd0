"""A stand-in for SimpleTuner under the bundled agent: its steps are shown and awaited, its word on GPUs is weighed."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nvml_library
import pytest
from agent_process import Agent, lives
from pythons import PYTHONS

from oarlock_local import nvml
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first

if TYPE_CHECKING:
    from collections.abc import Callable

STANDIN = str(Path(__file__).parents[1] / "support" / "standin.py")


@pytest.fixture
def standin(agent: Agent, bundle: Path) -> Callable[..., Agent]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agent.job["ports"]["status"] = port
    agent.job["preflight"]["storage"] = False
    agent.environment["STATUS_PORT"] = str(port)

    def start(name: str, **how: Any) -> Agent:
        agent.start_bundled(bundle, [sys.executable, STANDIN, name], **how)
        return agent

    return start


@pytest.mark.parametrize("python", quick_first(PYTHONS))
def test_its_steps_are_the_pods_progress(standin: Callable[..., Agent], python: Callable[[], Path]) -> None:
    agent = standin("reports_steps", python=python())
    agent.awaited("running")
    status = eventually(
        lambda: (now := agent.status())["phase"] == "Training" and now["checkpoint"] and now, "it trains"
    )
    assert (status["step"], status["totalSteps"], status["loss"], status["learningRate"]) == (7, 40, 0.5, 1e-05)
    assert status["secondsPerStep"] > 0
    assert status["firstStepAt"]
    assert (status["checkpoint"]["step"], status["checkpoint"]["path"]) == (5, "/output/flux/checkpoint-5")
    assert status["hangAfterSeconds"] is None
    assert 'reception="ignored",training_job="flux"} 1.0' in agent.get("/metrics").decode()
    agent.mark("finish")
    assert agent.wait() == 0
    report = agent.report()
    assert (report["step"], report["checkpointStep"]) == (7, 5)


def test_with_hang_seconds_steps_that_stop_are_a_hang(standin: Callable[..., Agent], agent: Agent) -> None:
    agent.job["recovery"] = {"hangSeconds": 1}
    pid = int(standin("stops_reporting").awaited("running"))
    assert agent.wait() == 83
    said = r"no step for [1-9]\d*\.\d s \(1 s are allowed\): rank 0 at step 3\b"
    assert re.match(said, agent.report()["summary"]), agent.report()["summary"]
    assert not lives(pid)


@pytest.mark.deep
def test_a_node_whose_command_has_no_steps_to_tell_is_not_judged_by_them(
    standin: Callable[..., Agent], agent: Agent
) -> None:
    agent.job |= {"recovery": {"hangSeconds": 1}, "nodes": 2}
    agent.environment["MACHINE_RANK"] = "1"
    standin("stops_reporting").awaited("running")
    assert agent.status()["hangAfterSeconds"] is None
    agent.mark("finish")
    assert agent.wait() == 0


@pytest.fixture
def gpus(agent: Agent, tmp_path: Path) -> nvml.Control:
    """The agent's pod has two GPUs."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    agent.environment["NVML_LIBRARY"] = str(nvml_library.build(folder))
    control = nvml.Control(folder)
    control.set("gpus=2")
    return control


def watched(agent: Agent) -> int:
    """Wait until the command runs and its GPUs are watched. Returns its pid."""
    pid = int(agent.awaited("running"))
    eventually(lambda: agent.status()["health"]["state"] == "Healthy", "the GPUs are watched")
    return pid


@pytest.mark.parametrize("program", quick_first(["blames_a_gpu", "blames_a_gpu_by_discord"]))
def test_a_gpu_that_it_alone_blames_restarts_the_processes_and_costs_no_node(
    standin: Callable[..., Agent], gpus: nvml.Control, program: str
) -> None:
    agent = standin(program)
    pid = watched(agent)
    agent.mark("fail")
    assert agent.wait() == 81
    report = agent.report()
    assert (report["class"], report["code"], report["xid"]) == ("GPU", 81, None)
    assert report["summary"].startswith(
        "GPU 1 (GPU-00000001, serial 165001, PCI 00000000:02:00.0) is blamed by the trainer"
    )
    assert [(one["probe"], one["value"]) for one in report["evidence"]] == [("webhook", "circuit_open")]
    assert (report["gpu"]["uuid"], report["step"]) == ("GPU-00000001", 3)
    assert not lives(pid)
    assert gpus.words == ["gpus=2"]


@pytest.mark.deep
def test_the_driver_that_agrees_within_a_moment_makes_it_a_broken_gpu(
    standin: Callable[..., Agent], gpus: nvml.Control
) -> None:
    agent = standin("blames_a_gpu")
    watched(agent)
    agent.mark("fail")
    agent.awaited("blamed")
    eventually(lambda: agent.report_path.exists() and agent.report_path.read_text(), "the trainer's own word")
    gpus.inject(gpu=1, xid=79)
    assert agent.wait() == 80
    report = agent.report()
    assert (report["xid"], report["gpu"]["uuid"]) == (79, "GPU-00000001")
    assert [one["probe"] for one in report["evidence"]] == ["xid"]


@pytest.mark.deep
def test_its_claim_stands_though_it_ends_by_an_exception_meanwhile(
    standin: Callable[..., Agent], gpus: nvml.Control
) -> None:
    agent = standin("blames_a_gpu")
    watched(agent)
    agent.mark("raise")
    agent.mark("fail")
    assert agent.wait() == 81
    assert agent.report()["evidence"][0]["probe"] == "webhook"
    assert gpus.words == ["gpus=2"]


@pytest.mark.deep
def test_a_warning_of_its_own_is_shown_and_changes_nothing(standin: Callable[..., Agent], gpus: nvml.Control) -> None:
    agent = standin("warns_of_a_gpu")
    pid = watched(agent)
    eventually(lambda: "is blamed by the trainer" in agent.status()["message"], "the warning is shown")
    assert (agent.status()["health"]["state"], lives(pid)) == ("Healthy", True)
    agent.mark("finish")
    assert agent.wait() == 0
    assert gpus.words == ["gpus=2"]


@pytest.mark.deep
def test_the_drivers_own_warning_sends_it_no_signal_that_it_does_not_know(
    standin: Callable[..., Agent], gpus: nvml.Control
) -> None:
    agent = standin("reports_steps")
    pid = watched(agent)
    gpus.inject(gpu=1, remap_pending=True)
    eventually(lambda: agent.status()["health"]["state"] == "Hold", "the driver's warning")
    assert lives(pid)
    agent.mark("finish")
    assert agent.wait() == 0


def test_the_drivers_word_ends_it_at_once(standin: Callable[..., Agent], gpus: nvml.Control) -> None:
    agent = standin("reports_steps")
    pid = watched(agent)
    gpus.inject(gpu=0, xid=79)
    assert agent.wait() == 80
    assert agent.report()["checkpointStep"] == 5
    assert not lives(pid)


@pytest.mark.deep
def test_a_command_that_is_killed_is_no_gpus_fault(standin: Callable[..., Agent], gpus: nvml.Control) -> None:
    agent = standin("reports_steps")
    os.kill(watched(agent), signal.SIGKILL)
    assert agent.wait() == 137
    assert gpus.words == ["gpus=2"]
