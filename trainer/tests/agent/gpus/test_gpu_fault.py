"""A GPU that breaks under running ranks: in a real agent, with the real binding and a pretended driver."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nvml_library
import pytest
from agent_process import SETTLES_SOON, lives

from oarlock_local import nvml
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.agent.gpus.gpu_guard import ECHO_SECONDS
from oarlock_trainer.health import circuit

if TYPE_CHECKING:
    from agent_process import Agent


@pytest.fixture
def gpus(agent: Agent, tmp_path: Path) -> nvml.Control:
    """The agent's pod has two GPUs."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    agent.environment["NVML_LIBRARY"] = str(nvml_library.build(folder))
    control = nvml.Control(folder)
    control.set("gpus=2")
    return control


GUARD = "oarlock_trainer.agent.gpus.gpu_guard"
HEALTH = "oarlock_trainer.agent.gpus.gpu_health"
ECHO_SOON = SETTLES_SOON | {f"{GUARD}:ECHO_SECONDS": 0.2}
"""For `Agent.altered`: a fifth of a second for what the driver may still say as well."""


def health(agent: Agent) -> dict[str, Any]:
    found: dict[str, Any] = agent.status()["health"]
    return found


def watched(agent: Agent, program: str = "trains_until_told") -> list[int]:
    """Start, and wait until both ranks run and the GPUs are watched. Returns the ranks' pids."""
    agent.start(program)
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    eventually(lambda: health(agent)["state"] == "Healthy", "the GPUs are watched")
    return pids


def test_status_tells_gpus_probes_and_a_closed_circuit(agent: Agent, gpus: nvml.Control) -> None:
    watched(agent)
    shown = health(agent)
    assert [gpu["uuid"] for gpu in shown["gpus"]] == ["GPU-00000000", "GPU-00000001"]
    assert shown["probes"]["recoveryAction"] is True
    assert shown["probes"]["sram"] is False
    assert shown["circuit"] == {"state": "closed", "reason": "", "gpu": None, "since": ""}
    assert gpus.words == ["gpus=2"]


def test_a_gpu_that_falls_off_the_bus_ends_the_pod_with_80_and_its_evidence(agent: Agent, gpus: nvml.Control) -> None:
    pids = watched(agent)
    gpus.inject(gpu=1, xid=79)
    assert agent.wait() == 80
    report = agent.report()
    assert (report["class"], report["code"], report["xid"]) == ("GPU", 80, 79)
    assert (report["gpu"]["index"], report["gpu"]["uuid"], report["gpu"]["serial"]) == (1, "GPU-00000001", "165001")
    assert report["evidence"][0]["probe"] == "xid"
    assert report["summary"] == ("GPU 1 (GPU-00000001, serial 165001, PCI 00000000:02:00.0) XID 79, fallen off the bus")
    assert report["checkpointStep"] == 100
    assert not any(lives(pid) for pid in pids)


def test_a_contained_fault_ends_it_with_81(agent: Agent, gpus: nvml.Control) -> None:
    agent.altered |= ECHO_SOON
    watched(agent)
    gpus.inject(gpu=0, xid=94)
    assert agent.wait() == 81
    assert (agent.report()["class"], agent.report()["xid"]) == ("GPU", 94)


def test_a_contained_fault_ends_the_round_alone_where_ranks_start_anew_in_their_pod(
    agent: Agent, gpus: nvml.Control
) -> None:
    agent.altered |= ECHO_SOON
    agent.job |= {"nodes": 1, "recovery": {"inPlace": "Auto"}}
    before = watched(agent)
    gpus.inject(gpu=1, xid=94)
    status = eventually(
        lambda: status if (status := agent.status()).get("round") == 2 and status["step"] else None, "a step of round 2"
    )
    (end,) = status["rounds"]
    assert end["code"] == 81
    assert end["gpu"] == {"index": 1, "uuid": "GPU-00000001", "serial": "165001", "xid": 94, "probe": "xid"}
    assert not any(lives(pid) for pid in before)
    eventually(lambda: health(agent)["state"] == "Healthy", "the circuit is closed")
    gpus.inject(gpu=0, xid=79)
    assert agent.wait() == 80
    assert agent.report()["gpu"]["index"] == 0


@pytest.mark.deep
def test_an_echo_does_not_hide_the_gpu_that_it_comes_from(agent: Agent, gpus: nvml.Control) -> None:
    watched(agent)
    gpus.set("0:action=0", "0:xid=74", "1:xid=79", "1:gone")
    assert agent.wait() == 80
    assert (agent.report()["gpu"]["index"], agent.report()["xid"]) == (1, 79)


@pytest.mark.deep
def test_ranks_that_end_by_themselves_do_not_shorten_the_moment_for_a_worse_fault(
    agent: Agent, gpus: nvml.Control
) -> None:
    watched(agent)
    gpus.inject(gpu=0, xid=94)
    eventually(lambda: agent.report_path.exists() and agent.report_path.read_text(), "the contained fault")
    agent.mark("finish")
    assert agent.wait() == 81
    lasted = datetime.now(UTC) - datetime.fromisoformat(agent.report()["detectedAt"])
    assert lasted.total_seconds() >= ECHO_SECONDS - 0.01


@pytest.mark.deep
def test_the_drivers_word_alone_is_enough(agent: Agent, gpus: nvml.Control) -> None:
    watched(agent)
    gpus.set("1:action=2")
    assert agent.wait() == 80
    assert "must have its node rebooted, says the driver" in agent.report()["summary"]
    assert agent.report()["xid"] is None


def test_a_warning_asks_for_a_checkpoint_and_the_training_goes_on(agent: Agent, gpus: nvml.Control) -> None:
    agent.altered = {f"{HEALTH}:MONITOR": "hurried_monitor"}
    watched(agent, "saves_on_demand")
    gpus.inject(gpu=1, remap_pending=True)
    agent.awaited("saved-0"), agent.awaited("saved-1")
    shown = health(agent)
    assert (shown["state"], shown["circuit"]["state"]) == ("Hold", "closed")
    assert "remaps a memory row" in shown["circuit"]["reason"]
    assert shown["circuit"]["gpu"]["uuid"] == "GPU-00000001"
    agent.mark("finish")
    assert agent.wait() == 0


def test_a_rank_that_blames_its_gpu_is_believed_as_far_as_a_text_goes(agent: Agent, gpus: nvml.Control) -> None:
    agent.altered |= SETTLES_SOON | {f"{GUARD}:CORROBORATE_SECONDS": 0.2}
    watched(agent, "blames_its_gpu")
    agent.mark("fail")
    assert agent.wait() == 81
    report = agent.report()
    assert report["summary"].startswith("rank 1: RuntimeError: CUDA error: an illegal memory access was encountered")
    assert (report["firstErrorRank"], report["xid"], report["evidence"]) == (1, None, [])
    assert gpus.words == ["gpus=2"]


@pytest.mark.deep
def test_the_driver_that_speaks_after_the_rank_has_the_last_word(agent: Agent, gpus: nvml.Control) -> None:
    pids = watched(agent, "blames_its_gpu")
    agent.send(signal.SIGSTOP)  # what waits for it meanwhile, it hears in the order in which it listens: ranks first
    agent.mark("fail")
    eventually(lambda: not lives(pids[1]), "the rank has said its word")
    gpus.inject(gpu=1, xid=48)
    agent.send(signal.SIGCONT)
    assert agent.wait() == 80
    assert (agent.report()["xid"], agent.report()["firstErrorRank"]) == (48, 1)


@pytest.mark.deep
def test_a_rank_that_native_code_aborts_is_understood_by_its_last_line(agent: Agent) -> None:
    agent.start("aborts_as_nccl_does")
    assert agent.wait() == 82
    assert "Watchdog caught collective operation timeout" in agent.report()["summary"]
    assert "terminate called" in agent.log_path.read_text()  # passed through


def test_a_pod_without_nvml_trains_unmonitored_and_says_so(agent: Agent, tmp_path: Path) -> None:
    agent.environment["NVML_LIBRARY"] = str(tmp_path / "none")
    agent.start("trains_until_told")
    agent.rank_pid(0)
    eventually(lambda: health(agent)["state"] == "Unmonitored", "no health is claimed")
    assert "no NVML" in health(agent)["circuit"]["reason"]
    agent.mark("finish")
    assert agent.wait() == 0


@pytest.mark.parametrize("number", quick_first([signal.SIGKILL, signal.SIGSEGV]))
def test_a_monitor_that_crashes_is_started_again_and_is_no_fault(
    agent: Agent, gpus: nvml.Control, number: signal.Signals
) -> None:
    agent.altered |= {f"{HEALTH}:_BACKOFF": [0.3], "oarlock_trainer.agent.supervise:_TICK_SECONDS": 0.1}
    pids = watched(agent)
    os.kill(monitor_of(agent), number)
    eventually(lambda: health(agent)["state"] == "Unmonitored", "nobody watches")
    eventually(lambda: health(agent)["state"] == "Healthy", "another monitor watches")
    assert all(lives(pid) for pid in pids)
    gpus.inject(gpu=0, xid=79)
    assert agent.wait() == 80


@pytest.mark.deep
def test_a_monitor_that_hangs_in_the_driver_is_replaced_and_blames_no_gpu(agent: Agent, gpus: nvml.Control) -> None:
    agent.altered = {f"{HEALTH}:SILENT_SECONDS": 3.0}
    pids = watched(agent)
    gpus.set("hangcalls")
    eventually(lambda: health(agent)["state"] == "Unmonitored", "nobody watches")
    assert "silent" in health(agent)["circuit"]["reason"]
    gpus.clear("hangcalls")
    eventually(lambda: health(agent)["state"] == "Healthy", "another monitor watches")
    assert all(lives(pid) for pid in pids)


def monitor_of(agent: Agent) -> int:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[1]) == agent.pid and b"oarlock_trainer.health.monitor" in command:
            return int(path.name)
    raise AssertionError("there is no monitor")


@pytest.mark.deep
def test_a_program_may_ask_whether_the_gpus_can_be_used(
    agent: Agent, gpus: nvml.Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched(agent)
    monkeypatch.setenv(circuit.PORT, agent.port)
    assert circuit.read() == circuit.Circuit("closed")
    gpus.inject(gpu=1, remap_pending=True)
    eventually(lambda: circuit.read().reason, "the warning")
    found = circuit.read()
    assert found.state == "closed"
    assert found.gpu is not None
    assert found.gpu.uuid == "GPU-00000001"
