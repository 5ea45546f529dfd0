"""Ranks that hang, for real: the agent sees it, says where, keeps the stacks, and ends them as one with 83."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from agent_process import lives

from oarlock_api.contract.history import StoryType, find_stacks, read_story
from oarlock_local.patience import eventually
from oarlock_trainer.agent.hangs.flight_recorder import FlightRecorder

if TYPE_CHECKING:
    from pathlib import Path

    from agent_process import Agent


SUPERVISE = "oarlock_trainer.agent.supervise"
LOOKS_SOON = {f"{SUPERVISE}:_TICK_SECONDS": 0.1, f"{SUPERVISE}:ANSWER_SECONDS": 0.7}
"""For `Agent.altered`: it looks ten times as often, and waits half as long for what hanging ranks say."""


@pytest.fixture
def impatient(agent: Agent) -> Agent:
    agent.job["recovery"] = {"hangSeconds": 1}
    return agent


def kept(agent: Agent, rank: int) -> str:
    """What one rank said of where it stands, from the one text of the pod."""
    (path,) = find_stacks(agent.output)
    said = dict(re.findall(r"^rank (\d+):\n(.*?)(?=\n\nrank |\Z)", path.read_text(), re.DOTALL | re.MULTILINE))
    return said[str(rank)]


def test_ranks_that_stop_stepping_end_as_one_with_83_and_their_stacks_are_kept(impatient: Agent) -> None:
    impatient.altered |= LOOKS_SOON
    impatient.start("stops_stepping")
    pids = [impatient.rank_pid(0), impatient.rank_pid(1)]
    assert impatient.wait() == 83
    assert not any(map(lives, pids))
    report = impatient.report()
    assert (report["class"], report["code"], report["step"], report["firstErrorRank"]) == ("Hang", 83, 5, None)
    assert re.search(r"no step for [1-9]\d*\.\d s \(1 s are allowed\)", report["summary"])
    assert "rank 0 at step 5, in wait (python3" in report["summary"]
    assert "rank 1 at step 5, in computes_for_ever (support/fake_programs.py:" in report["summary"]
    assert "waits_for_its_peer" in kept(impatient, 0)
    assert "computes_for_ever" in kept(impatient, 1)
    assert json.loads((impatient.output / ".oarlock" / "reports" / "3-0.json").read_text()) == report
    (told,) = (line for line in read_story(impatient.output) if line.type == StoryType.STACKS)
    assert [impatient.output / ".oarlock" / "history" / name for name in told.data["files"]] == find_stacks(
        impatient.output
    )
    logged = {line["message"]: line.get("stacks", "") for line in impatient.log()}
    assert "waits_for_its_peer" in logged["stacks of rank 0"]


@pytest.mark.deep
def test_the_report_of_a_hang_is_there_before_anybody_is_asked_for_stacks(impatient: Agent) -> None:
    impatient.start("hangs_and_reads_the_report")
    assert impatient.wait() == 83
    first = json.loads((impatient.scratch / "report-seen-by-0").read_text())
    assert (first["code"], first["class"]) == (83, "Hang")
    assert first["summary"].endswith("ranks 0, 1 at step 5")


def test_a_stopped_rank_is_a_hang_that_is_traced_to_it(impatient: Agent) -> None:
    impatient.altered |= LOOKS_SOON
    impatient.start("steps_for_ever")
    pids = [impatient.rank_pid(0), impatient.rank_pid(1)]
    os.kill(pids[1], signal.SIGSTOP)
    assert impatient.wait() == 83
    report = impatient.report()
    assert report["firstErrorRank"] == 1
    # It was stopped wherever it was.
    assert re.search(r"rank 1 at step \d+, stopped by a signal, in \w+ \(", report["summary"])
    assert f"rank 0 at step {report['step']}," in report["summary"], "what ranks do once they are awake is not told"
    assert not any(map(lives, pids))


@pytest.mark.deep
def test_a_stopped_rank_stays_so_until_the_agents_of_other_nodes_have_seen_the_hang(impatient: Agent) -> None:
    impatient.start("steps_and_notes_when")
    impatient.rank_pid(0)
    os.kill(impatient.rank_pid(1), signal.SIGSTOP)
    assert impatient.wait() == 83
    verdict = next(line["time"] for line in impatient.log() if line["message"].startswith("no step for"))
    looked = datetime.fromisoformat(verdict) + timedelta(seconds=1)  # agents look once a second
    steps = map(float, (impatient.scratch / "steps-1").read_text().split())
    assert not [step for step in steps if datetime.fromisoformat(verdict).timestamp() < step < looked.timestamp()]
    assert "steps_and_notes_when" in kept(impatient, 1)


@pytest.mark.deep
def test_ranks_that_are_stopped_with_their_host_are_a_hang_too(impatient: Agent) -> None:
    impatient.start("steps_for_ever", warm="fake_programs:slow_imports")
    impatient.mark("imported")
    host, *pids = int(impatient.awaited("importing")), impatient.rank_pid(0), impatient.rank_pid(1)
    for pid in (host, *pids):
        os.kill(pid, signal.SIGSTOP)
    assert impatient.wait() == 83
    assert "stopped by a signal" in impatient.report()["summary"]
    assert "steps_for_ever" in kept(impatient, 0)
    assert not any(map(lives, (host, *pids)))


def test_a_rank_that_blocks_in_native_code_still_says_where(impatient: Agent) -> None:
    impatient.altered |= LOOKS_SOON
    impatient.start("blocks_in_native_code")
    assert impatient.wait() == 83
    assert "rank 0 at step 5, in sleeps_without_the_lock (" in impatient.report()["summary"]
    assert "rank 1 at step 5, in sleeps_with_the_lock (" in impatient.report()["summary"]
    assert "waits_for_its_peer" in kept(impatient, 0), "all threads are there"


@pytest.mark.deep
def test_ranks_that_were_asked_to_leave_are_not_called_hung(impatient: Agent) -> None:
    impatient.job["recovery"] = {"hangSeconds": 2}
    impatient.start("steps_for_ever", arguments=("--grace-seconds", "3.5"))
    impatient.rank_pid(0), impatient.rank_pid(1)
    impatient.send(signal.SIGTERM)
    impatient.awaited("asked-0")
    eventually(lambda: impatient.status()["hangAfterSeconds"] is None, "nothing is judged any more")
    assert impatient.wait() == 86


@pytest.mark.deep
def test_an_output_that_is_gone_costs_the_copies_and_nothing_else(impatient: Agent) -> None:
    impatient.start("stops_stepping")
    impatient.rank_pid(0), impatient.rank_pid(1)
    impatient.output.rename(impatient.scratch / "elsewhere")
    assert impatient.wait() == 83
    assert "computes_for_ever" in impatient.report()["summary"]
    assert not impatient.output.exists()


def test_the_flight_recorders_of_gpu_ranks_are_asked_and_their_dumps_kept(impatient: Agent) -> None:
    impatient.altered |= LOOKS_SOON
    del impatient.environment["OARLOCK_SIMULATE_GPUS"]
    impatient.start("records_collectives")
    assert impatient.wait() == 83
    (path,) = find_stacks(impatient.output)
    assert path.with_name(f"{path.stem}.nccl-trace-rank-1").read_text() == "collectives of rank 1"


def test_a_checkpoint_that_is_committed_while_the_ranks_hang_counts(impatient: Agent) -> None:
    impatient.altered |= LOOKS_SOON
    del impatient.environment["OARLOCK_SIMULATE_GPUS"]
    impatient.start("its_checkpoint_is_committed_while_it_hangs")
    assert impatient.wait() == 83
    story = read_story(impatient.output)
    assert [line.data["step"] for line in story if line.type == StoryType.CHECKPOINT] == [5]
    assert impatient.report()["step"] == 5, "what else ranks tell that were shaken awake does not"


def test_status_says_how_long_the_present_phase_may_go_without_progress(agent: Agent) -> None:
    agent.start("trains_until_told")
    eventually(lambda: agent.status()["checkpoint"], "a checkpoint in /status")
    assert eventually(lambda: agent.status()["hangAfterSeconds"], "a bound in /status") == 60.0
    agent.mark("finish")
    assert agent.wait() == 0


def test_a_hang_seconds_that_is_no_number_of_seconds_ends_with_85(agent: Agent) -> None:
    agent.job["recovery"] = {"hangSeconds": -1}
    agent.start("never_leaves")
    assert agent.wait() == 85
    assert "recovery.hangSeconds" in agent.report()["summary"]


@pytest.mark.parametrize("own", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"])
def test_a_job_that_collects_its_dumps_itself_is_left_alone(own: str, tmp_path: Path) -> None:
    recorder = FlightRecorder(tmp_path, {own: "/elsewhere/rank-"}, wanted=True)
    assert recorder.environment == {}
    recorder.ask([0])
    assert recorder.dumps() == []


def test_where_no_pipe_can_be_made_torch_is_not_told_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert FlightRecorder(tmp_path / "file" / "nccl", {}, wanted=True).environment == {}
    assert FlightRecorder(tmp_path / "nccl", {}, wanted=False).environment == {}


def test_dumps_that_an_earlier_agent_left_are_none_of_these_ranks(tmp_path: Path) -> None:
    (tmp_path / "nccl-trace-rank-0").write_text("old")
    (tmp_path / "others").touch()
    assert FlightRecorder(tmp_path, {}, wanted=True).dumps() == []
    assert [path.name for path in tmp_path.iterdir()] == ["others"]


def test_what_the_job_chose_for_the_recorder_stays(tmp_path: Path) -> None:
    environment = FlightRecorder(tmp_path, {"TORCH_FR_BUFFER_SIZE": "50000"}, wanted=True).environment
    assert environment["TORCH_FR_BUFFER_SIZE"] == "50000"
    assert environment["TORCH_FR_DUMP_TEMP_FILE"].startswith(str(tmp_path))
