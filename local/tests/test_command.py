"""The command line, where it needs no cluster."""

import os
from pathlib import Path

import pytest

from oarlock_local import machine
from oarlock_local.cli import main
from oarlock_local.faults import FAULTS, NODE_ACTIONS, Target


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


def test_every_fault_of_a_node_is_carried_out_by_the_supervisor() -> None:
    assert {name for name, fault in FAULTS.items() if fault.target is Target.NODE} == set(NODE_ACTIONS)


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
