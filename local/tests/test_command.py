"""The command line, where it needs no cluster."""

import argparse
import os
from pathlib import Path

import pytest

from oarlock_local import fault_command, machine
from oarlock_local.cli import main
from oarlock_local.faults import FAULTS, GPU_ACTIONS, NODE_ACTIONS, Target
from oarlock_local.nvml.words import OF_A_GPU


@pytest.mark.parametrize("command", ["", "up", "down", "status", "kubectl", "kubeconfig", "fault", "volume", "load"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert end.value.code == 0
    assert "usage: oarlock-local" in capsys.readouterr().out


def test_the_help_of_fault_lists_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fault", "--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in FAULTS)
    assert all(f"I:{word}" in printed for word in OF_A_GPU)


def test_every_fault_of_a_node_is_carried_out_by_the_supervisor() -> None:
    assert {name for name, fault in FAULTS.items() if fault.target is Target.NODE} == set(NODE_ACTIONS)
    assert {name for name, fault in FAULTS.items() if fault.target is Target.GPU} == set(GPU_ACTIONS)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("", {}),
        ("--gpu 0", {"gpu": 0}),
        ("--gpu 3 --xid 79", {"gpu": 3, "xid": 79}),
        ("--lost", {"lost": True}),
        ("--recovery-action 4", {"recovery_action": 4}),
        ("--ecc 2", {"ecc": 2}),
        ("--remap-pending", {"remap_pending": True}),
        ("--remap-failed", {"remap_failed": True}),
        ("--nvlink-down 0", {"nvlink_down": 0}),
        ("--throttle 1.5", {"throttle": 1.5}),
        ("--word 1:margin=-2", {"word": "1:margin=-2"}),
    ],
)
def test_what_happens_to_a_gpu_is_said_by_options(options: str, what: dict[str, object]) -> None:
    parser = argparse.ArgumentParser()
    fault_command.add_arguments(parser)
    given = parser.parse_args(["dev", "gpu", "node-1", *options.split()])
    assert fault_command.of_a_gpu(given) == what


def test_one_thing_happens_to_a_gpu_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fault", "dev", "gpu", "node-1", "--lost", "--ecc", "1"])
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["kubeconfig", "nowhere"], ["fault", "nowhere", "cut", "node-1"], ["kubectl", "nowhere", "get"]]
)
def test_a_cluster_that_is_not_there_is_named_with_the_way_to_start_it(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--state-dir", str(tmp_path), *command]) == 1
    assert "no cluster 'nowhere'" in (printed := capsys.readouterr().err)
    assert "oarlock-local up nowhere" in printed


def test_down_of_nothing_is_fine_and_claims_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(tmp_path), "down", "nowhere"]) == 0
    assert "there is no nowhere" in capsys.readouterr().err


def test_status_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(tmp_path), "status"]) == 0
    assert "no clusters" in capsys.readouterr().out


def test_a_name_that_no_host_could_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "Not_A_Name"]) == 1
    assert "lower-case" in capsys.readouterr().err


def test_without_root_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["--state-dir", str(tmp_path), "up"]) == 1
    printed = capsys.readouterr().err
    assert "--control-plane-only" in printed
    assert "KUBECONFIG" in printed


def test_without_iproute2_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "install iproute2" in (machine.why_no_nodes() or "")
