"""The operator against a real API server: from a TrainingJob to pods, and through the lives of a gang.

No kubelet runs here: the tests write pods' statuses, as a kubelet would.
"""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest
from gangs import JOBS, LEASE, SETTINGS, Gang
from made_pods import told
from processes import Api, operator

from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster


def test_a_job_becomes_a_headless_service_and_ranked_pods(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.wait_for_pods("1-0", "1-1")
    service = gang.api.call("GET", f"/api/v1/namespaces/default/services/{gang.name}")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    pod = gang.pods()["1-1"]
    env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
    assert env["MACHINE_RANK"] == "1"
    assert pod["spec"]["hostname"] == f"{gang.name}-1"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
    assert told(pod).attempt == 1
    assert gang.api.call("GET", f"{JOBS}/{gang.name}")["metadata"].get("finalizers") is None


def test_a_crash_leads_to_the_next_attempt_and_zeros_to_success(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.run()
    gang.end("1-1", 1, "ValueError: x")
    gang.run(2)
    assert gang.status["restarts"]["application"] == 1
    for rank in (0, 1):
        gang.end(f"2-{rank}", 0)
    status = gang.wait_for_phase("Succeeded")
    assert status["completionTime"]
    assert status["attempts"][1]["reason"] == "ApplicationError"
    eventually(lambda: {"Starting", "ApplicationError", "Succeeded"} <= gang.events() or None, "Events")


def test_unusable_data_fails_with_its_reason_and_is_not_retried(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.run()
    gang.end("1-0", 85, "dataset photos: no pictures in /output/photos")
    status = gang.wait_for_phase("Failed")
    assert (status["reason"], status["attempt"]) == ("ConfigurationError", 1)
    assert "no pictures" in status["message"]


def test_deleting_the_job_removes_everything_while_no_operator_runs(
    api: Api, as_operator: Path, tmp_path: Path
) -> None:
    with operator(as_operator, tmp_path / "operator.log", *SETTINGS):
        gang = Gang(api)
        gang.wait_for_pods("1-0", "1-1")
    api.call("DELETE", f"{JOBS}/{gang.name}")
    eventually(lambda: not gang.pods(), "garbage collection")
    eventually(lambda: api.find(f"/api/v1/namespaces/default/services/{gang.name}") is None, "the Service to go")


def test_an_operator_that_is_killed_is_replaced_and_loses_nothing(api: Api, as_operator: Path, tmp_path: Path) -> None:
    with operator(as_operator, tmp_path / "first.log", *SETTINGS) as first:
        gang = Gang(api)
        gang.run()
        first.send_signal(signal.SIGKILL)
        first.wait()
    api.call("DELETE", LEASE)  # as if it had run out
    gang.end("1-0", 1)
    with operator(as_operator, tmp_path / "second.log", *SETTINGS):
        gang.run(2)
        assert gang.status["attempt"] == 2


def test_of_two_operators_one_works_and_the_other_takes_over(api: Api, as_operator: Path, tmp_path: Path) -> None:
    briefly = ("--lease-seconds", "10", "--progress-seconds", "1")
    with operator(as_operator, tmp_path / "first.log", *briefly) as first:
        eventually(lambda: "leading" in (tmp_path / "first.log").read_text() or None, "a leader")
        with operator(as_operator, tmp_path / "second.log", *SETTINGS):
            eventually(lambda: "waiting for the Lease" in (tmp_path / "second.log").read_text() or None, "a follower")
            first.send_signal(signal.SIGKILL)
            first.wait()
            gang = Gang(api)
            gang.wait_for_pods("1-0", "1-1")


def test_two_jobs_with_one_output_never_run_together(with_operator: Api) -> None:
    output = {"persistentVolumeClaim": {"claimName": "out"}, "directory": f"shared-{uuid.uuid4().hex[:6]}"}
    first = Gang(with_operator, output=output)
    first.wait_for_pods("1-0", "1-1")
    second = Gang(with_operator, output=output)
    status = second.wait_for_phase("Failed")
    assert status["reason"] == "OutputInUse"
    assert first.name in status["message"]
    assert not second.pods()
    assert sorted(first.pods()) == ["1-0", "1-1"]


def test_a_job_of_the_same_name_made_anew_is_another_job(with_operator: Api) -> None:
    gang = Gang(with_operator)
    gang.wait_for_pods("1-0", "1-1")
    before = gang.pods()["1-0"]["metadata"]["uid"]
    api = gang.api
    raw = api.call("GET", f"{JOBS}/{gang.name}")
    api.call("DELETE", f"{JOBS}/{gang.name}")
    fresh = {key: raw[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": gang.name}}
    api.call("POST", JOBS, fresh)
    eventually(
        lambda: (pods := gang.pods()).keys() == {"1-0", "1-1"} and pods["1-0"]["metadata"]["uid"] != before,
        "pods of the new job",
    )
