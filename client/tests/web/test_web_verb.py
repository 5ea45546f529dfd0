"""`oarlock web` as a program: what it prints, and how it ends; and the page of a pod."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest
import urllib3
from ended import Oarlock
from fake_api import JOBS, FakeApi

from oarlock_local import patience


def begun(*command: str) -> subprocess.Popen[str]:
    program = str(Path(sys.executable).with_name(command[0]))
    return subprocess.Popen([program, *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("interruptible")
def test_it_prints_a_link_that_lets_one_in_and_ends_by_ctrl_c(api: FakeApi) -> None:
    api.add_job("flux", "team")
    with begun("oarlock", "web", "--no-open", "--port", "0", "-n", "team") as server:
        assert server.stdout
        link = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?key=[\w-]{43}", link)
        answer = urllib3.request("GET", link, redirect=False)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        base = link.partition("/enter")[0]
        start = urllib3.request("GET", f"{base}/", headers={"Cookie": cookie}, redirect=False)
        assert start.headers["location"] == "/jobs/team"
        page = urllib3.request("GET", f"{base}/jobs/team", headers={"Cookie": cookie})
        assert b"flux" in page.data
        # A page that is open does not hold the server up.
        urllib3.request("GET", f"{base}/live/jobs/team", headers={"Cookie": cookie}, preload_content=False)
        server.send_signal(signal.SIGINT)
        assert server.wait(patience.SECONDS) == 130
        assert server.stderr
        assert "Traceback" not in server.stderr.read()


@pytest.mark.usefixtures("api")
def test_the_browser_is_not_started_with_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/given\n')
    browser.chmod(0o755)
    os.mkfifo(tmp_path / "given")
    monkeypatch.setenv("BROWSER", str(browser))
    with begun("oarlock", "web", "--port", "0") as server:
        assert server.stdout
        key = server.stdout.readline().strip().partition("key=")[2]
        given = (tmp_path / "given").read_text().strip()
        assert key not in given
        assert key in Path(given.removeprefix("file://")).read_text()
        assert Path(given.removeprefix("file://")).parent.stat().st_mode & 0o777 == 0o700
        server.send_signal(signal.SIGINT)
        server.wait(patience.SECONDS)
    assert not Path(given.removeprefix("file://")).exists()


def test_a_port_that_is_taken_is_one_line(api: FakeApi, oarlock: Oarlock) -> None:
    port = api.address.rpartition(":")[2]
    ended = oarlock("web", "--no-open", "--port", port)
    assert ended.code == 8
    assert "name another --port" in ended.err


@pytest.mark.parametrize(
    ("refusal", "code", "told"),
    [
        ((401, "Unauthorized"), 5, "does not know who asks"),
        ((403, "you may not list jobs"), 5, "you may not list jobs: ask for that right, or name another namespace"),
        ((404, "404 page not found"), 4, "is Oarlock installed there?"),
    ],
)
def test_a_cluster_that_shows_the_caller_no_jobs_is_one_line_and_no_page(
    api: FakeApi, oarlock: Oarlock, refusal: tuple[int, str], code: int, told: str
) -> None:
    api.refusals[JOBS.format("default")] = refusal
    ended = oarlock("web", "--no-open", "--port", "0")
    assert (ended.code, ended.out) == (code, "")
    assert told in ended.err
    assert ended.err.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_one_line_and_no_page(
    oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nobody = FakeApi()
    nobody.address = "http://127.0.0.1:1"
    monkeypatch.setenv("KUBECONFIG", str(nobody.kubeconfig(tmp_path)))
    ended = oarlock("web", "--no-open", "--port", "0")
    assert (ended.code, ended.out) == (6, "")
    assert ended.err.count("\n") == 1


def test_a_pods_page_answers_the_kubelet_lets_people_log_in_and_ends_by_sigterm(api: FakeApi) -> None:
    api.add_job("flux", "team")
    command = [
        sys.executable,
        "-u",
        "-m",
        "oarlock.web",
        "--listen",
        "127.0.0.1",
        "--port",
        "0",
        "--api-server",
        api.address,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout
        base = f"http://127.0.0.1:{re.findall(r'[0-9]+', pod.stdout.readline())[-1]}"
        assert urllib3.request("GET", f"{base}/healthz").data == b"ok"
        form = {"token": "t0ken", "then": "/jobs/team"}
        here = {"Sec-Fetch-Site": "same-origin"}
        answer = urllib3.request("POST", f"{base}/login", body=urlencode(form), headers=here, redirect=False)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert b"flux" in urllib3.request("GET", f"{base}/jobs/team", headers={"Cookie": cookie}).data
        pod.terminate()
        assert pod.wait(patience.SECONDS) in {0, -signal.SIGTERM}
