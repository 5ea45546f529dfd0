"""`oarlock logs --path`: the logs that an output has kept, without a cluster."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ended import Oarlock

from oarlock.exit_codes import ExitCode
from oarlock.kept_logs import read
from oarlock.logs import Wanted
from oarlock_api.contract import history
from oarlock_api.contract.gzip_members import member
from oarlock_api.contract.log_lines import LogStream, incarnation_begins, stamped

JOB, OTHER = "3f2a91cc-0", "0" * 36


def keep(
    output: Path, name: str, *lines: tuple[int, str], attempt: int = 1, job: str = JOB, torn: bool = False
) -> Path:
    """A log with one member for each (second, text)."""
    path = output / history.HISTORY / history.LOGS / history.attempt_folder(attempt, job) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    written = b"".join(
        member(stamped(f"{text}\n".encode(), stream=LogStream.OUT, time=f"2026-01-01T00:00:{second:02}.000Z"))
        for second, text in lines
    )
    path.write_bytes(written[:-4] if torn else written)
    os.utime(path, (attempt, attempt))
    return path


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two attempts, the newest of two ranks, of which one's log has an older part; and no cluster."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    keep(tmp_path, "0.log.gz", (1, "old"))
    keep(tmp_path, "0.1.log.gz", (1, "rank 0 begins"), attempt=2)
    keep(tmp_path, "0.log.gz", (4, "loss 2"), attempt=2)
    keep(tmp_path, "1.log.gz", (2, "rank 1 begins"), (5, "loss 3"), attempt=2)
    return tmp_path


def test_ranks_and_parts_are_merged_by_time_without_a_cluster(output: Path, oarlock: Oarlock) -> None:
    assert oarlock("logs", "--path", str(output)).out.splitlines() == [
        "2026-01-01T00:00:01Z attempt 2, pod 0: rank 0 begins",
        "2026-01-01T00:00:02Z attempt 2, pod 1: rank 1 begins",
        "2026-01-01T00:00:04Z attempt 2, pod 0: loss 2",
        "2026-01-01T00:00:05Z attempt 2, pod 1: loss 3",
    ]
    assert (
        oarlock("logs", "--path", str(output), "--rank", "1", "--grep", "loss").out
        == "2026-01-01T00:00:05Z attempt 2, pod 1: loss 3\n"
    )
    for older in (["--previous"], ["--attempt", "1"]):
        assert oarlock("logs", "--path", str(output), *older).out == "2026-01-01T00:00:01Z attempt 1, pod 0: old\n"


def test_what_a_lost_pod_printed_can_be_asked_for_alone_and_so_can_its_successor_s(
    output: Path, oarlock: Oarlock
) -> None:
    path = keep(output, "1.log.gz", (2, "the first"), attempt=2)
    begins = f"{incarnation_begins(2)}\n".encode()
    with path.open("ab") as log:
        log.write(member(stamped(begins, stream=LogStream.NOTE, time="2026-01-01T00:00:03.000Z")))
        log.write(member(stamped(b"the second\n", stream=LogStream.OUT, time="2026-01-01T00:00:04.000Z")))
    os.utime(path, (3, 3))

    def told(*more: str) -> tuple[list[str], str]:
        ended = oarlock("logs", "--path", str(output), "--pod", "1", *more)
        return [line.partition(" ")[2] for line in ended.out.splitlines()], ended.err

    assert told()[0] == ["attempt 2, pod 1: the first", "attempt 2, pod 1-i2: the second"]
    assert told("--incarnation", "1")[0] == ["attempt 2, pod 1: the first"]
    assert told("--incarnation", "2")[0] == ["attempt 2, pod 1-i2: the second"]
    none, note = told("--incarnation", "3")
    assert none == []
    assert "pod 1 has incarnations up to 2 alone" in note


def test_of_each_pod_its_last_lines_are_kept(output: Path, oarlock: Oarlock) -> None:
    def told(*more: str) -> list[str]:
        said = oarlock("logs", "--path", str(output), *more).out
        return [line.partition(": ")[2] for line in said.splitlines()]

    assert told("--tail", "1") == ["loss 2", "loss 3"]
    assert told("--tail", "0") == []
    assert told("--tail", "9") == told("--tail", "-1") == told()
    assert told("--tail", "1", "--grep", "begins") == [], "of the last lines those that match"


def test_lines_of_json_are_as_those_of_pods(output: Path, oarlock: Oarlock) -> None:
    assert json.loads(oarlock("logs", "--path", str(output), "--attempt", "1", "-o", "jsonl").out) == {
        "text": "old", "kind": "line", "time": "2026-01-01T00:00:01.000Z", "attempt": 1, "rank": 0, "pod": "",
        "incarnation": 1,
    }  # fmt: skip


def test_lines_of_json_have_no_control_characters_and_mean_them(output: Path, oarlock: Oarlock) -> None:
    keep(output, "0.log.gz", (1, "\x9b1m red"), attempt=3)
    out = oarlock("logs", "--path", str(output), "-o", "jsonl").out
    assert "\x9b" not in out
    assert json.loads(out)["text"] == "\x9b1m red"


def test_since_counts_back_from_now(output: Path) -> None:
    now = datetime(2026, 1, 1, 0, 0, 6, tzinfo=UTC)
    lines = read(output, Wanted(since=timedelta(seconds=2)), now=now)
    assert [line.text for line in lines] == ["loss 2", "loss 3"]


def test_a_torn_log_is_read_and_said_to_be_torn(output: Path, oarlock: Oarlock) -> None:
    keep(output, "0.log.gz", (1, "whole"), (2, "torn"), attempt=3, torn=True)
    ended = oarlock("logs", "--path", str(output))
    assert (ended.code, ended.out) == (ExitCode.DONE, "2026-01-01T00:00:01Z attempt 3, pod 0: whole\n")
    assert "pod 0: some lines are lost here" in ended.err


def test_of_two_jobs_of_one_name_the_newest_is_read_and_the_other_named(output: Path, oarlock: Oarlock) -> None:
    path = keep(output, "0.log.gz", (1, "anew"), job=OTHER)
    os.utime(path, (9, 9))
    ended = oarlock("logs", "--path", str(output), "--attempt", "1")
    assert ended.out == "2026-01-01T00:00:01Z attempt 1, pod 0: anew\n"
    assert "of job 000000" in ended.err
    assert "3f2a91" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--path", "/dev"], ExitCode.NOT_FOUND, "no output of a job"),
        (["--path", "OUTPUT", "--attempt", "7"], ExitCode.NOT_NOW, "it keeps 1, 2"),
        (["--path", "OUTPUT", "--rank", "7"], ExitCode.NOT_NOW, "no pod 7 of attempt 2: it has 0, 1"),
        (["--path", "OUTPUT", "--pod", "7"], ExitCode.NOT_NOW, "no pod 7"),
        (["--path", "OUTPUT", "--follow"], ExitCode.USAGE, "--follow"),
        (["--path", "OUTPUT", "flux"], ExitCode.USAGE, "one of the two"),
        ([], ExitCode.USAGE, "name a job"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    output: Path, oarlock: Oarlock, arguments: list[str], code: ExitCode, words: str
) -> None:
    ended = oarlock("logs", *[str(output) if word == "OUTPUT" else word for word in arguments])
    assert (ended.code, ended.out) == (code, "")
    assert words in ended.err
