from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ended import Oarlock
from fake_api import JOBS, FakeApi


def one_line(err: str) -> str:
    assert err.startswith("oarlock: ")
    assert err.count("\n") == 1, err
    return err


def test_no_kubeconfig_is_one_line_and_6(oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    ended = oarlock("ls")
    assert (ended.code, ended.out) == (6, "")
    assert "/nowhere/config" in one_line(ended.err)


@pytest.mark.parametrize("text", ["{", "[]", "kind: Config\n", "apiVersion: v1\nclusters: 3\ncurrent-context: x\n"])
def test_a_kubeconfig_that_is_none_is_one_line_and_6(
    oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    ended = oarlock("ls")
    assert ended.code == 6
    assert "cannot be used" in one_line(ended.err)


def test_a_cluster_that_is_down_is_one_line_and_6(
    oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nobody = FakeApi()
    nobody.address = "http://127.0.0.1:1"
    monkeypatch.setenv("KUBECONFIG", str(nobody.kubeconfig(tmp_path)))
    ended = oarlock("ls")
    assert ended.code == 6
    assert "127.0.0.1:1" in one_line(ended.err)


@pytest.mark.usefixtures("api")
def test_a_context_that_is_not_there_is_6(oarlock: Oarlock) -> None:
    ended = oarlock("ls", "--context", "moon")
    assert ended.code == 6
    assert "moon" in one_line(ended.err)


@pytest.mark.parametrize(("status", "code"), [(401, 5), (403, 5), (404, 4), (422, 7), (500, 7)])
def test_what_the_server_refuses_is_one_line_with_its_words_and_a_code(
    api: FakeApi, oarlock: Oarlock, status: int, code: int
) -> None:
    api.refusals[f"{JOBS.format('default')}/flux"] = (status, "the server's\nwords")
    ended = oarlock("get", "flux")
    assert ended.code == code
    assert status == 401 or "the server's words" in one_line(ended.err)


@pytest.mark.usefixtures("api")
def test_a_job_that_is_not_there_is_4_for_every_verb_that_names_one(oarlock: Oarlock) -> None:
    verbs = [
        "get",
        "logs",
        "wait",
        "events",
        "suspend",
        "resume",
        "save",
        "drill",
        "stacks",
        "stop",
        "delete",
        "faults",
    ]
    assert {verb: oarlock(verb, "flux").code for verb in verbs} == dict.fromkeys(verbs, 4)


@pytest.mark.parametrize(
    "arguments", [["lss"], ["ls", "--all"], ["get"], ["ls", "-o", "xml"], ["logs", "x", "--since", "soon"], ["submit"]]
)
@pytest.mark.usefixtures("api")
def test_a_wrong_command_line_is_one_line_and_64(oarlock: Oarlock, arguments: list[str]) -> None:
    ended = oarlock(*arguments)
    assert ended.code == 64
    one_line(ended.err)


def test_a_pipe_that_is_closed_early_is_silent_and_141(api: FakeApi) -> None:
    for number in range(2000):
        api.add_job(f"flux-{number}")
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "oarlock", "ls"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.usefixtures("api")
def test_a_namespace_that_is_not_there_is_4_and_an_empty_one_is_not(oarlock: Oarlock) -> None:
    for verb in ("ls", "top"):
        ended = oarlock(verb, "-n", "nowhere")
        assert (ended.code, ended.out) == (4, "")
        one_line(ended.err)
    ended = oarlock("ls")
    assert (ended.code, ended.out) == (0, "")
    assert "no TrainingJobs" in ended.err
