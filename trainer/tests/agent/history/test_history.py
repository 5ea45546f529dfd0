"""What a real agent leaves below the output of its attempt, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
from agent_process import SETTLES_SOON

from oarlock_api.contract import history
from oarlock_api.contract.history import OperatorNotes, StoryLine, StoryType
from oarlock_api.contract.kept_spec import SPEC, read_spec, settings
from oarlock_api.contract.layout import REPORT_PAGE
from oarlock_api.contract.log_lines import LogStream, begun_incarnation, read_log
from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from agent_process import Agent

    from oarlock_api.contract.log_lines import LogLine


def story(agent: Agent) -> dict[str, StoryLine]:
    return {line.type: line for line in history.read_story(agent.output)}


def log(agent: Agent) -> list[LogLine]:
    (attempt,) = history.find_logs(agent.output)
    return list(read_log(attempt.files[0]))


def test_a_good_attempt_leaves_its_story_and_its_log_without_the_job_s_secrets(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    agent.environment |= {"THE_TOKEN": "fake-se", "OARLOCK_HISTORY": OperatorNotes(image="trainer:1").to_json()}
    agent.start("prints_and_saves")
    assert agent.wait() == 0
    told = story(agent)
    assert told[StoryType.ATTEMPT_STARTED].data == {"nodes": 2, "gpusPerNode": 2, "image": "trainer:1"}
    assert told[StoryType.CHECKPOINT].data == {"step": 5, "path": "/output/flux/5", "stallSeconds": 0.5}
    assert (told[StoryType.ENDED].reason, told[StoryType.ENDED].data["code"]) == ("Succeeded", 0)
    assert {(line.job, line.attempt, line.rank, line.node) for line in told.values()} == {
        ("uid-of-job", 3, 0, "node-1")
    }
    kept = log(agent)
    texts = {(line.stream, line.text) for line in kept}
    assert (LogStream.OUT, "step 5: the key is ***cret") in texts
    assert (LogStream.ERR, "a warning") in texts
    assert any(line.stream == LogStream.AGENT and json.loads(line.text)["message"] == "ranks started" for line in kept)
    assert "fake-se" not in "".join(line.text for line in kept)
    assert "fake-secret" in agent.log_path.read_text(), "what the pod itself prints stays as it is"


def test_the_settings_are_kept_without_the_job_s_secrets_and_replaced_by_the_next_attempt(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    (agent.output / SPEC).parent.mkdir(parents=True)
    (agent.output / SPEC).write_text("of an earlier attempt")
    agent.environment |= {"THE_TOKEN": "fake-se", "OARLOCK_SPEC": settings({"custom": {"args": ["x", "fake-secret"]}})}
    agent.start("prints_and_saves")
    assert agent.wait() == 0
    kept = read_spec(agent.output)
    assert kept
    assert (kept.job, kept.namespace, kept.name, kept.attempt) == ("uid-of-job", "default", "flux", 3)
    assert kept.spec == {"custom": {"args": ["x", "***cret"]}}


@pytest.mark.deep
def test_settings_that_cannot_be_kept_are_one_line_in_the_log_and_all_else_is_kept(agent: Agent) -> None:
    (agent.output / SPEC).mkdir(parents=True)
    agent.environment["OARLOCK_SPEC"] = settings({"training": {"steps": 300}})
    agent.start("prints_and_saves")
    assert agent.wait() == 0
    assert story(agent)[StoryType.ENDED].reason == "Succeeded"
    (said,) = [line for line in agent.log() if line["message"].startswith("the job's settings are not kept")]
    assert "spec.json" in said["message"]
    assert any(line.text == "a warning" for line in log(agent))
    assert (agent.output / REPORT_PAGE).exists()


def test_a_pod_that_ends_before_its_ranks_could_run_says_why(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    with socket.create_server(("", 0)) as taken:
        agent.job["ports"]["status"] = taken.getsockname()[1]
        agent.start("prints_and_saves")
        assert agent.wait() == 87
    told = story(agent)
    assert "set spec.pod.ports.status" in told[StoryType.FAULT].message
    assert told[StoryType.ENDED].data == {"code": 87}
    assert any("set spec.pod.ports.status" in line.text for line in log(agent))


@pytest.mark.deep
def test_an_attempt_of_one_node_says_where_it_is(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    agent.job["nodes"] = 1
    agent.start("prints_and_saves")
    assert agent.wait() == 0
    assert story(agent)[StoryType.GANG_COMPLETE].data == {"nodes": {"0": "node-1"}}


def test_a_later_pod_of_a_rank_writes_into_the_same_log_from_a_note_on(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    agent.environment |= {"OARLOCK_INCARNATION": "2"}
    agent.start("prints_and_saves")
    agent.status()  # it listens, and waits for the others
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.wait() == 86
    assert next(begun_incarnation(line) for line in log(agent)) == 2


def test_a_rank_that_is_killed_leaves_what_it_printed_and_the_verdict(agent: Agent) -> None:
    agent.altered |= SETTLES_SOON
    agent.output.mkdir(parents=True)
    agent.start("prints_and_waits")
    agent.rank_pid(0)
    os.kill(agent.rank_pid(1), signal.SIGKILL)
    assert agent.wait() == 137
    assert sorted(line.text for line in log(agent) if line.stream == LogStream.OUT) == ["rank 0 waits", "rank 1 waits"]
    fault = story(agent)[StoryType.FAULT]
    assert (fault.reason, fault.data["code"], fault.data["firstErrorRank"]) == ("Application", 137, 1)


def test_an_agent_that_is_killed_leaves_files_that_can_be_read(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    agent.start("prints_for_ever")
    agent.rank_pid(0)
    eventually(lambda: list((agent.output / history.HISTORY).glob("logs/*/*.gz")), "the first part of its log")
    agent.send(signal.SIGKILL)
    agent.wait()
    assert story(agent)[StoryType.ATTEMPT_STARTED].attempt == 3
    assert all(line.time for line in log(agent))


@pytest.mark.parametrize("place", ["hangs", "is full", "is a file"])
def test_storage_of_which_nothing_comes_back_ends_no_training(agent: Agent, place: str) -> None:
    agent.output.mkdir(parents=True)
    folder = agent.output / history.HISTORY
    if place == "hangs":
        agent.altered = {"oarlock_trainer.agent.leaving:HISTORY_SECONDS": 0.2}
    if place == "is a file":
        folder.parent.mkdir()
        folder.write_text("")
    else:
        folder.mkdir(parents=True)
        # Whoever opens a FIFO without a reader waits, as on a dead mount; /dev/full has no room.
        story_file = folder / history.STORY
        os.mkfifo(story_file) if place == "hangs" else story_file.symlink_to("/dev/full")
    agent.start("prints_and_saves")
    assert agent.wait() == 0
    assert agent.log_path.read_text().count("step 5: the key is fake-secret") == 2
    assert place == "hangs" or "the history lacks something, training goes on" in agent.log_path.read_text()


def test_what_the_operator_decided_about_earlier_attempts_is_told_once(agent: Agent) -> None:
    agent.output.mkdir(parents=True)
    who = {"job": "uid-of-job", "time": "2026-01-01T00:00:00Z"}
    first, second = (StoryLine(type="Decision", attempt=n, reason="NodeLost", **who) for n in (1, 2))
    known = agent.output / history.HISTORY / history.STORY
    known.parent.mkdir(parents=True)
    known.write_text(first.to_json() + "\n" + first.to_json()[:30])
    agent.environment["OARLOCK_HISTORY"] = OperatorNotes(decisions=(first, second)).to_json()
    agent.start("prints_and_saves")
    assert agent.wait() == 0
    decided = [line.attempt for line in history.read_story(agent.output) if line.type == StoryType.DECISION]
    assert decided == [1, 2]


def test_another_pod_than_rank_0_s_tells_its_own_fault_in_a_file_of_its_own(agent: Agent) -> None:
    agent.altered |= SETTLES_SOON
    agent.output.mkdir(parents=True)
    agent.environment["MACHINE_RANK"] = "1"
    agent.start("prints_and_waits")
    os.kill(agent.rank_pid(3), signal.SIGKILL)
    assert agent.wait() == 137
    assert not (agent.output / history.HISTORY / history.STORY).exists()
    (fault,) = history.read_story(agent.output)
    assert (fault.type, fault.rank, fault.data["firstErrorRank"]) == (StoryType.FAULT, 1, 3)
