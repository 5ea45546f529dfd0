"""The agent's life with real processes: start, status, endings, SIGTERM, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from agent_process import lives

from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from agent_process import Agent


def test_when_all_ranks_are_done_the_agent_ends_with_0_and_its_last_words_blame_nobody(agent: Agent) -> None:
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    report = agent.report()
    assert (report["code"], report["class"], report["firstErrorRank"]) == (0, "", None)


def test_each_rank_gets_its_place_in_the_gang(agent: Agent) -> None:
    agent.environment["MACHINE_RANK"] = "1"
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    common = ["4", "2", "flux-0.flux.default.svc", "29500", "cpu", "1"]
    assert agent.awaited("environment-2").split() == ["2", "0", *common]
    assert agent.awaited("environment-3").split() == ["3", "1", *common]


@pytest.mark.deep
def test_a_job_without_gpus_runs_one_rank_for_each_node(agent: Agent) -> None:
    agent.job["gpus_per_node"] = 0
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    assert sorted(path.name for path in agent.scratch.glob("environment-*")) == ["environment-0"]


@pytest.mark.deep
def test_status_is_served_while_the_ranks_program_is_still_being_imported(agent: Agent) -> None:
    agent.start("leaves_its_environment", warm="fake_programs:slow_imports")
    status = agent.status()
    assert (status["phase"], status["jobUid"], status["podUid"], status["attempt"]) == (
        "Preflight",
        "uid-of-job",
        "uid-of-pod",
        3,
    )
    assert agent.get("/healthz") == b"ok\n"
    assert not list(agent.scratch.glob("environment-*"))
    agent.mark("imported")
    assert agent.wait() == 0


def test_status_and_metrics_tell_what_the_first_rank_tells(agent: Agent) -> None:
    agent.start("trains_until_told")
    eventually(lambda: agent.status()["checkpoint"], "a checkpoint in /status")
    status = agent.status()
    assert (status["phase"], status["step"], status["totalSteps"], status["loss"]) == ("Training", 101, 300, 0.5)
    assert (status["resumedFromStep"], status["checkpoint"]["step"]) == (100, 100)
    assert status["startedAt"] < status["firstStepAt"]
    assert 'oarlock_trainer_step{rank="0",training_job="flux"} 101.0' in agent.get("/metrics").decode()
    agent.mark("finish")
    assert agent.wait() == 0


@pytest.mark.deep
def test_accelerates_configuration_is_rendered(agent: Agent) -> None:
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
    rendered = yaml.safe_load((agent.scratch / "run" / "accelerate.yaml").read_text())
    assert (rendered["num_machines"], rendered["num_processes"], rendered["machine_rank"]) == (2, 4, 0)


def test_a_failing_rank_is_reported_while_the_others_still_live_and_then_all_are_gone(agent: Agent) -> None:
    agent.altered = {"oarlock_trainer.agent.supervise:_SETTLE_SECONDS": 0.5}  # in which the others see the report
    agent.start("first_rank_fails")
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    assert agent.wait() == 1
    assert (agent.scratch / "report-seen-alive").exists()
    report = agent.report()
    assert (report["class"], report["code"], report["firstErrorRank"]) == ("Application", 1, 0)
    assert report["summary"] == "rank 0: ValueError: the loss is not a number"
    assert not any(map(lives, pids))


def test_a_report_tells_an_exception_without_its_native_stack_and_ends_without_a_period(agent: Agent) -> None:
    """The operator puts it inside sentences of its own: "... in the arena. Attempt 2 starts"."""
    agent.start("fails_in_native_code")
    assert agent.wait() == 1
    assert agent.report()["summary"] == "rank 0: RuntimeError: No room left in the arena"


@pytest.mark.deep
def test_the_report_is_copied_below_the_output(agent: Agent) -> None:
    agent.start("only_a_victim")
    assert agent.wait() == 82
    copied = json.loads((agent.output / ".oarlock" / "reports" / "3-0.json").read_text())
    assert copied == agent.report()
    assert copied["class"] == "PeerLost"


@pytest.mark.deep
def test_a_lost_peer_that_the_ranks_alone_noticed_is_told_by_the_pods_end_at_once(agent: Agent) -> None:
    agent.start("only_a_victim")
    assert agent.wait() == 82
    assert not any(line.get("message") == "waiting to be told to go" for line in agent.log())


@pytest.mark.deep
def test_a_root_cause_that_speaks_up_after_its_victim_is_the_verdict(agent: Agent) -> None:
    agent.start("victim_before_culprit")
    assert agent.wait() == 85
    assert agent.report()["summary"] == 'rank 1: dataset "photos" is empty'
    assert agent.report()["firstErrorRank"] == 1


def test_a_killed_rank_ends_the_pod_with_128_plus_its_signal(agent: Agent) -> None:
    agent.start("first_rank_is_killed")
    pid = agent.rank_pid(1)
    assert agent.wait() == 128 + signal.SIGKILL
    assert "rank 0 was killed by SIGKILL: out of memory" in agent.report()["summary"]
    assert not lives(pid)


@pytest.mark.deep
def test_a_rank_that_says_why_and_then_hangs_does_not_hold_the_pod(agent: Agent) -> None:
    agent.start("says_why_and_hangs")
    assert agent.wait() == 84
    assert agent.report()["summary"] == "rank 0: no space left"


@pytest.mark.deep
def test_ranks_that_have_all_left_do_not_hold_the_pod_in_their_teardown(agent: Agent) -> None:
    agent.start("says_saved_and_hangs")
    assert agent.wait() == 86
    assert agent.report()["summary"].endswith("saved step 7 and left on request")


def test_sigterm_lets_the_ranks_save_and_the_pod_leaves_with_86(agent: Agent) -> None:
    agent.start("saves_when_asked")
    agent.rank_pid(0), agent.rank_pid(1)
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert agent.report()["leavingSeconds"] >= 0, "how long a save takes whose pod is told to go"
    assert sorted(path.name for path in agent.scratch.glob("saved-*")) == ["saved-0", "saved-1"]
    assert agent.report()["class"] == "Requested"


def test_sigterm_before_the_ranks_run_ends_the_pod_with_86_at_once(agent: Agent) -> None:
    agent.start("saves_when_asked", warm="fake_programs:slow_imports")
    importing = int(agent.awaited("importing"))
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert not lives(importing)


@pytest.mark.deep
def test_ranks_that_wait_for_a_peer_have_nothing_to_save_and_do_not_hold_their_gpus(agent: Agent) -> None:
    agent.altered = {"oarlock_trainer.agent.supervise:_NOTHING_TO_SAVE_SECONDS": 0.5}
    agent.start("never_leaves")
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86  # without a second signal
    assert not any(lives(pid) for pid in pids)


def test_a_second_sigterm_kills_ranks_that_do_not_leave(agent: Agent) -> None:
    agent.start("never_leaves")
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    agent.send(signal.SIGTERM)
    agent.awaited("asked-0")
    assert all(map(lives, pids))
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert "2 ranks were killed unsaved" in agent.report()["summary"]
    assert not any(map(lives, pids))


def test_when_the_grace_time_is_over_the_ranks_are_killed(agent: Agent) -> None:
    agent.start("never_leaves", arguments=("--grace-seconds", "0.2"))
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert not any(map(lives, pids))


def test_no_rank_survives_an_agent_that_is_killed(agent: Agent) -> None:
    agent.start("never_leaves")
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    agent.send(signal.SIGKILL)
    eventually(lambda: not any(map(lives, pids)), "the ranks are gone")


def test_no_rank_survives_its_host_and_the_pod_ends_with_the_hosts_signal(agent: Agent) -> None:
    agent.start("never_leaves", warm="fake_programs:slow_imports")
    agent.mark("imported")
    host = int(agent.awaited("importing"))
    pids = [agent.rank_pid(0), agent.rank_pid(1)]
    os.kill(host, signal.SIGKILL)
    assert agent.wait() == 128 + signal.SIGKILL
    assert not any(map(lives, pids))


def test_orphans_are_reaped_while_the_pod_runs_and_none_outlives_it(agent: Agent) -> None:
    agent.start("leaves_processes_behind")
    agent.rank_pid(0), agent.rank_pid(1)
    short, long = int(agent.awaited("orphan-short")), int(agent.awaited("orphan-long"))
    eventually(lambda: not Path(f"/proc/{short}").exists(), "the zombie is reaped")
    assert lives(long)
    agent.mark("finish")
    assert agent.wait() == 0
    assert not lives(long)


def test_failing_imports_end_the_pod_with_their_error(agent: Agent) -> None:
    agent.start("never_leaves", warm="fake_programs:imports_fail")
    assert agent.wait() == 1
    assert agent.report()["summary"] == "rank 0: ImportError: libcudart.so.99 is missing"


def test_a_job_file_of_another_version_ends_with_85_and_says_what_to_use(agent: Agent) -> None:
    agent.job["version"] = 99
    agent.start("never_leaves")
    assert agent.wait() == 85
    report = agent.report()
    assert (report["class"], report["attempt"], report["podUid"]) == ("Configuration", 3, "uid-of-pod")
    assert "use the trainer image of the operator's release" in report["summary"]


def test_a_taken_status_port_ends_with_87_and_names_the_setting(agent: Agent) -> None:
    with socket.create_server(("", 0)) as taken:
        agent.job["ports"]["status"] = taken.getsockname()[1]
        agent.start("trains_until_told")
        assert agent.wait() == 87
    assert "set spec.pod.ports.status" in agent.report()["summary"]


def test_a_training_value_that_cannot_be_translated_ends_with_85(agent: Agent) -> None:
    agent.job["training"] = {"gradientClipping": {"max": "a lot"}}
    agent.start("never_leaves")
    assert agent.wait() == 85
    assert "gradientClipping.max" in agent.report()["summary"]


def test_a_failure_of_the_agent_itself_is_reported_too(agent: Agent) -> None:
    agent.launcher = ("sh", "-c", 'ulimit -n 8; exec "$@"', "sh")
    agent.start("never_leaves")
    assert agent.wait() == 1
    assert "the agent itself failed: OSError" in agent.report()["summary"]
