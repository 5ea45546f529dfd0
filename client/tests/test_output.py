"""What is printed, and where: columns, names, encodings, pipes, and notes while something is watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ended import Oarlock
from fake_api import JOBS, FakeApi
from rich.cells import cell_len

JOBS_PATH = JOBS.format("default")


def test_columns_stand_below_each_other_whatever_their_letters(api: FakeApi, oarlock: Oarlock) -> None:
    for name, fault in (("flux", "显卡掉线"), ("lora", "XID 79 é")):
        api.add_job(name, status={"phase": "Running", "lastFault": {"nodeName": fault, "class": "GPU"}})
    for name in ("flux", "lora"):
        title, line = oarlock("faults", name).out.splitlines()
        assert cell_len(line[: line.index("last fault")]) == title.index("KIND")


def test_a_name_among_all_namespaces_has_its_namespace(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux")
    api.add_job("flux", "team")
    assert oarlock("ls", "-A", "-o", "name").out == "default/flux\nteam/flux\n"
    assert oarlock("ls", "-o", "name").out == "flux\n"


def test_what_a_stream_cannot_write_is_replaced_and_json_loses_nothing(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Running", "message": "数据 \ud800"})

    def printed(*arguments: str) -> str:
        command = [sys.executable, "-m", "oarlock", *arguments]
        environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert "?? ?" in printed("get", "flux")
    assert json.loads(printed("ls", "-o", "json"))["items"][0]["message"] == "数据 \ud800"
    assert "\\u6570" in printed("ls", "-o", "yaml")


def test_a_pipe_that_is_closed_while_why_writes_is_silent_and_141(api: FakeApi) -> None:
    api.add_job("flux")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-u", "-m", "oarlock", "why", "flux"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


def of_the_command(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """Exchange the command's sleep alone: threads of other tests may sleep beside it."""
    others = time.sleep

    def exchanged(seconds: float) -> None:
        (sleep if threading.current_thread() is threading.main_thread() else others)(seconds)

    monkeypatch.setattr(time, "sleep", exchanged)


def test_a_hiccup_does_not_end_a_watch_and_is_told(
    api: FakeApi, oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.add_job("flux", status={"phase": "Queued"})
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        api.refusals = {JOBS_PATH: (503, "being upgraded")} if len(slept) < 3 else {}
        if len(slept) == 3:
            job["status"] = {"phase": "Running"}
        if len(slept) == 4:
            raise KeyboardInterrupt

    of_the_command(monkeypatch, sleep)
    ended = oarlock("ls", "-w", "-o", "jsonl")
    assert [json.loads(line)["phase"] for line in ended.out.splitlines()] == ["Queued", "Running"]
    assert ended.code == 130
    assert ended.err == "-- being upgraded; asked again in 1 s\n-- being upgraded; asked again in 2 s\n"


@pytest.mark.usefixtures("api")
def test_submit_refuses_a_format_that_it_has_not(oarlock: Oarlock, tmp_path: Path) -> None:
    assert oarlock("submit", "-f", str(tmp_path / "none.yaml"), "-o", "nonsense").code == 64


def test_what_get_prints_can_be_submitted_again(api: FakeApi, oarlock: Oarlock, tmp_path: Path) -> None:
    job = api.add_job("flux", status={"phase": "Running"})
    job["metadata"] |= {"resourceVersion": "7", "generation": 2, "managedFields": [{}], "labels": {"team": "a"}}
    file = tmp_path / "flux.yaml"
    file.write_text(oarlock("get", "flux", "-o", "yaml").out)
    assert yaml.safe_load(file.read_text())["metadata"]["uid"]
    oarlock("delete", "flux")
    assert oarlock("submit", "-f", str(file)).code == 0
    made = api.objects[f"{JOBS_PATH}/flux"]
    assert made["metadata"] == {"name": "flux", "namespace": "default", "labels": {"team": "a"}}
    assert "status" not in made


def test_a_hiccup_does_not_end_top(api: FakeApi, oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch) -> None:
    api.add_job("flux", status={"phase": "Running"})
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        api.refusals = {JOBS_PATH: (503, "being upgraded")} if len(slept) < 3 else {}
        if len(slept) == 4:
            raise KeyboardInterrupt

    of_the_command(monkeypatch, sleep)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert oarlock("top").code == 130
    assert slept == [2, 1, 2, 2]
