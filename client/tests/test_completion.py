from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
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


def bash_offers(*words: str) -> list[str]:
    """What bash would complete after these words, by its own completion function."""
    asked = f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}; _oarlock_completion oarlock; "
    return run("bash", asked + 'printf "%s\\n" "${COMPREPLY[@]}"').split()


def zsh_offers(*words: str) -> list[str]:
    """The same of zsh, whose function hands `_arguments` the words with their help."""
    shown = 'compdef() { :; }; _arguments() { print -r -- "$@"; }; '
    asked = f"words=({shlex.join(words)}) CURRENT={len(words)}; _oarlock_completion"
    return re.findall(r'(?:(?<=\(\()|(?<=" ))"([^"]+)"', run("zsh", asked, before=shown))


def run(shell: str, asked: str, *, before: str = "") -> str:
    """What a shell prints that has read its completion script."""
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here to run it")
    plain = ["--norc"] if shell == "bash" else ["-f"]
    command = [shell, *plain, "-c", f"{before}\n{script(shell)}\n{asked}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment()).stdout


@cache
def script(shell: str) -> str:
    """As the shell gets it from us."""
    asked = {**environment(), "_OARLOCK_COMPLETE": f"source_{shell}"}
    return subprocess.run(["oarlock"], check=False, capture_output=True, text=True, env=asked).stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}


@pytest.mark.parametrize("offers", [bash_offers, zsh_offers])
def test_a_shell_is_offered_verbs_options_and_names(api: FakeApi, offers: Callable[..., list[str]]) -> None:
    api.add_job("flux")
    api.add_job("lora", "team")
    api.objects["/api/v1/namespaces/team"] = {"metadata": {"name": "team"}}
    api.objects["/api/v1/nodes/gpu-1"] = {"metadata": {"name": "gpu-1"}, "spec": {"unschedulable": True}}
    assert offers("oarlock", "su") == ["submit", "suspend"]
    assert offers("oarlock", "wait", "--time") == ["--timeout"]
    assert offers("oarlock", "wait", "f") == ["flux"]
    assert offers("oarlock", "ls", "-n", "") == ["default", "team"]
    assert offers("oarlock", "wait", "-n", "team", "") == ["lora"]
    assert offers("oarlock", "uncordon", "g") == ["gpu-1"]
