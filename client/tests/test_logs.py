from __future__ import annotations

import json
import sys

import pytest
from ended import Oarlock
from fake_api import FakeApi

from oarlock import Client, followed_logs
from oarlock.cli.logs import print_logs
from oarlock.logs import LogLine

FIRST = "2026-01-01T00:00:01.5Z rank 0 begins\n2026-01-01T00:00:03.000000000Z loss 1\n"
SECOND = "2026-01-01T00:00:01.25Z rank 1 begins\n2026-01-01T00:00:02Z loss 2\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_logs, "LOOK_SECONDS", 0.01)


def test_all_pods_are_merged_by_time_with_attempt_and_pod(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 2})
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:00Z old\n")
    api.add_pod("flux", 2, 0, FIRST)
    api.add_pod("flux", 2, 1, SECOND)
    assert oarlock("logs", "flux").out.splitlines() == [
        "2026-01-01T00:00:01Z attempt 2, pod 1: rank 1 begins",
        "2026-01-01T00:00:01Z attempt 2, pod 0: rank 0 begins",
        "2026-01-01T00:00:02Z attempt 2, pod 1: loss 2",
        "2026-01-01T00:00:03Z attempt 2, pod 0: loss 1",
    ]
    assert (
        oarlock("logs", "flux", "--rank", "1", "--grep", "loss").out
        == "2026-01-01T00:00:02Z attempt 2, pod 1: loss 2\n"
    )
    assert (
        oarlock("logs", "flux", "--previous").out
        == oarlock("logs", "flux", "--attempt", "1").out
        == "2026-01-01T00:00:00Z attempt 1, pod 0: old\n"
    )


STEP = '{"time":"2026-01-01T00:00:01Z","attempt":1,"step":140,"total":500,"loss":0.7123456,"secondsPerStep":0.3912}'


def test_what_the_trainer_prints_as_json_is_told_in_words_and_found_by_them(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 1})
    wrong = json.dumps({"time": "", "level": "error", "job": "f", "attempt": 1, "rank": 0, "message": "no\x1b[2J room"})
    api.add_pod("flux", 1, 0, f"2026-01-01T00:00:01Z {STEP}\n2026-01-01T00:00:02Z {wrong}\n")
    ended = oarlock("logs", "flux")
    assert ended.out == (
        "2026-01-01T00:00:01Z attempt 1, pod 0: step 140 of 500, loss 0.7123, 0.391 s/step\n"
        "2026-01-01T00:00:02Z attempt 1, pod 0: ERROR no room\n"
    )
    assert ended.err == ""
    for pattern in ("loss 0\\.71", '"loss":0\\.71'):
        assert oarlock("logs", "flux", "--grep", pattern).out.count("\n") == 1, pattern
    assert json.loads(oarlock("logs", "flux", "-o", "json", "--grep", "loss").out)["text"] == STEP


def test_a_terminal_gets_the_day_once_and_of_each_line_the_time_of_the_day(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = [LogLine(text="x", time=f"2026-01-0{day}T00:00:0{day}.5Z", attempt=1, rank=0) for day in (1, 1, 2)]
    print_logs(lines)
    told = capsys.readouterr()
    assert [line[:8] for line in told.out.splitlines()] == ["00:00:01", "00:00:01", "00:00:02"]
    assert told.err == "-- 2026-01-01, in UTC\n-- 2026-01-02, in UTC\n"


def test_lines_of_json_have_time_attempt_and_rank(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 1})
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z x\n")
    assert json.loads(oarlock("logs", "flux", "-o", "jsonl").out) == {
        "text": "x", "kind": "line", "time": "2026-01-01T00:00:01Z", "attempt": 1, "rank": 0, "pod": "flux-1-0",
        "incarnation": 1,
    }  # fmt: skip


def test_since_is_the_kubelets_to_judge(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 1})
    api.add_pod("flux", 1, 0, FIRST)
    oarlock("logs", "flux", "--since", "5m")
    assert "sinceSeconds=300" in api.asked[-1][1]


def test_of_each_pod_the_last_lines_are_asked_for_as_kubectl_does(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 1})
    for rank in (0, 1):
        api.add_pod("flux", 1, rank, FIRST)
    oarlock("logs", "flux", "--tail", "1")
    assert ["tailLines=1" in path for _, path, _ in api.asked if "/log?" in path] == [True, True]
    api.asked.clear()
    oarlock("logs", "flux", "--tail=-1")
    assert ["tailLines" in path for _, path, _ in api.asked if "/log?" in path] == [False, False]


def test_nothing_is_waited_for_without_follow(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 1, "phase": "Starting"})
    pod = api.add_pod("flux", 1, 0, None, state="waiting")
    pod["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": "ImagePullBackOff"}
    ended = oarlock("logs", "flux")
    assert (ended.code, ended.out) == (0, "")
    assert "ImagePullBackOff" in ended.err


def test_the_attempt_before_the_first_is_told_as_such(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"phase": "Running", "attempt": 1})
    ended = oarlock("logs", "flux", "-p")
    assert (ended.code, "it is in its first attempt" in ended.err) == (8, True)


def test_of_a_pod_that_was_made_anew_it_is_said_where_the_lost_one_s_log_lies_and_each_can_be_asked_for(
    api: FakeApi, oarlock: Oarlock
) -> None:
    api.add_job("flux", status={"attempt": 1})
    api.add_pod("flux", 1, 0, FIRST)["metadata"]["labels"]["oarlock.dev/incarnation"] = "2"
    ended = oarlock("logs", "flux")
    assert ended.out.splitlines()[0] == "2026-01-01T00:00:01Z attempt 1, pod 0-i2: rank 0 begins"
    assert "took the place of a pod that was lost" in ended.err
    assert "oarlock logs --path <output>/flux --attempt 1 --pod 0" in ended.err
    assert oarlock("logs", "flux", "--incarnation", "2").out == ended.out
    lost = oarlock("logs", "flux", "--pod", "0", "--incarnation", "1")
    assert lost.code != 0
    assert "pod 0 of attempt 1, incarnation 1, of flux has no pods now" in lost.err
    assert "--pod 0` reads it" in lost.err


def test_pods_that_are_gone_are_told_with_where_their_logs_lie(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"attempt": 2, "phase": "Failed"})
    ended = oarlock("logs", "flux", "--attempt", "1")
    assert ended.code == 8
    assert ".oarlock/history/logs/1-uidflu" in ended.err


def test_following_goes_on_with_the_next_attempt_and_ends_with_the_job(api: FakeApi) -> None:
    job = api.add_job("flux", status={"attempt": 1, "phase": "Running"})
    api.add_pod("flux", 1, 0, FIRST, state="terminated")
    seen = []
    for line in Client().job("flux").logs(follow=True, tail=5):
        seen.append((line.kind, line.attempt, line.text))
        if line.text == "loss 1" and line.attempt == 1:
            api.add_pod("flux", 2, 0, SECOND, state="terminated")
            job["status"]["attempt"] = 2
        if line.text == "loss 2":
            job["status"]["completionTime"] = "2026-01-01T00:01:00Z"
    lines = [(attempt, text) for kind, attempt, text in seen if kind == "line"]
    assert lines == [(1, "rank 0 begins"), (1, "loss 1"), (2, "rank 1 begins"), (2, "loss 2")]
    assert ("note", 2, "attempt 2 prints") in seen
    cut = {path.split("/pods/")[1][:8]: "tailLines=5" in path for _, path, _ in api.asked if "/log?" in path}
    assert cut == {"flux-1-0": True, "flux-2-0": False}, "of what begins while we look on, nothing is old"


def test_a_log_that_breaks_off_is_read_on_without_a_line_twice(api: FakeApi) -> None:
    job = api.add_job("flux", status={"attempt": 1, "phase": "Running"})
    pod = api.add_pod("flux", 1, 0, FIRST)
    path = "/api/v1/namespaces/default/pods/flux-1-0/log"
    lines = []
    for line in Client().job("flux").logs(follow=True):
        if line.kind == "note":
            continue
        lines.append(line.text)
        if line.text == "loss 1":
            # As a kubelet does: the log ended though the container runs, and begins anew at the second that is asked for.
            api.logs[path] = b"".join(api.logs[path].splitlines(keepends=True)[1:]) + b"2026-01-01T00:00:03.1Z loss 3\n"
        if line.text == "loss 3":
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {}}
            job["status"]["completionTime"] = "2026-01-01T00:01:00Z"
    assert lines == ["rank 0 begins", "loss 1", "loss 3"]


def test_following_tells_of_attempts_that_it_never_saw(api: FakeApi) -> None:
    job = api.add_job("flux", status={"attempt": 1, "phase": "Running"})
    api.add_pod("flux", 1, 0, FIRST, state="terminated")
    notes = []
    for line in Client().job("flux").logs(follow=True):
        if line.kind == "note":
            notes.append(line.text)
        elif line.text == "loss 1":
            api.add_pod("flux", 3, 0, SECOND, state="terminated")
        elif line.text == "loss 2":
            job["status"]["completionTime"] = "2026-01-01T00:01:00Z"
    assert "attempt 2 came and went unread" in notes
