from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_api import FakeApi

PROGRAMS = Path(sys.executable).parent


def kubectl_asks(*words: str) -> list[str]:
    told = subprocess.run(
        [PROGRAMS / "kubectl_complete-oarlock", *words], check=True, capture_output=True, text=True
    ).stdout
    *lines, directive = told.splitlines()
    assert directive == ":4", "kubectl is told not to offer files"
    return [line for line in lines if line]


def test_kubectl_is_given_verbs_options_and_the_names_of_jobs(api: FakeApi) -> None:
    api.add_job("flux")
    api.add_job("lora")
    assert kubectl_asks("su") == ["submit", "suspend"]
    assert "--timeout" in kubectl_asks("wait", "--")
    assert kubectl_asks("wait", "") == ["flux", "lora"]
    assert kubectl_asks("wait", "f") == ["flux"]


def test_completion_without_a_cluster_is_empty_and_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert kubectl_asks("wait", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shells_script_completes(shell: str) -> None:
    program = PROGRAMS / "oarlock"
    script = subprocess.run(
        [program],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "_OARLOCK_COMPLETE": f"source_{shell}"},
    ).stdout
    assert f"complete_{shell}" in script
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here to run it")
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    if shell == "zsh":
        checked = subprocess.run(
            ["zsh", "-n"], input=script, text=True, capture_output=True, check=False, env=environment
        )
        assert (checked.returncode, checked.stderr) == (0, "")
        return
    asked = 'COMP_WORDS=(oarlock su) COMP_CWORD=1; _oarlock_completion oarlock; echo "${COMPREPLY[@]}"'
    told = subprocess.run(
        ["bash", "-c", f"{script}\n{asked}"], check=True, capture_output=True, text=True, env=environment
    )
    assert told.stdout.split() == ["submit", "suspend"]
