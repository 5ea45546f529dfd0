"""The example's workflow, run by Argo's own controller on real nodes.

The tests about what happens in the middle share one training: each finds it in training and, but for the last, leaves it so.
"""

from __future__ import annotations

import pytest

from oarlock_local import patience
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.rights import Right, asked, granted, never_used, not_had
from tests.argo.conftest import BASE, RIGHTS
from tests.argo.workflows import ACCOUNT, Workflows, messages, outputs, phases
from tests.chart.rendering import render

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1800)]

OF_AN_ADMISSION_PLUGIN = Right("argoproj.io", "workflows/finalizers", "update")
"""Asked for by nobody: a plugin of this cluster looks whether who names a workflow as owner has it, and refuses the job."""
JOB_FAILED = "main: Error (exit code 64): failure condition '{status.failed == [1]}' evaluated true"


@pytest.fixture(scope="module")
def training(workflows: Workflows, finished: str) -> str:
    """The name of a workflow of one step, a training that goes on for ever and has a checkpoint."""
    del finished  # which made the embeddings
    name = workflows.submit(entrypoint="train", nodes="2", steps="1000000", base=BASE)
    workflows.job(f"{name}-train")
    workflows.jobs.wait_for_checkpoint_of(f"{name}-train", 1)
    return name


def test_the_example_preprocesses_trains_and_judges(workflows: Workflows, finished: str) -> None:
    status = workflows.status(finished)
    assert status["phase"] == "Succeeded", messages(status)
    train = f"/output/{finished}-train"
    trained = workflows.jobs.status(f"{finished}-train")
    told = outputs(status)
    assert told["preprocess"] == {"embeds": f"/output/{finished}-preprocess/reports/data.json"}
    assert told["train"] == {"model": f"{train}/model", "checkpoint": trained["latestCheckpoint"]["path"]}
    assert told["judge"] == {"report": f"/output/{finished}-judge"}
    assert (workflows.jobs.output / f"{finished}-judge/reports/evaluation.json").is_file()


def test_a_step_whose_pod_is_deleted_or_killed_finds_its_job_again(workflows: Workflows, training: str) -> None:
    job = f"{training}-train"
    before = workflows.job(job)
    first = workflows.wait_for_argos_pod(training)["metadata"]
    workflows.cluster.kubectl("delete", "pod", first["name"], "--wait=false")
    second = workflows.wait_for_argos_pod(training, after=first["uid"])["metadata"]
    workflows.cluster.fault("kill-container", f"default/{second['name']}/main")
    status = workflows.wait(training, "a third attempt", lambda status: phases(status).get("train(2)") == "Running")
    told = [messages(status)[f"train({number})"] for number in range(2)]
    assert told == ["main: Error (exit code 64): context canceled", "main: Error (exit code 137)"]
    after = workflows.job(job)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (after["status"]["attempt"], after["status"]["restartCount"]) == (1, 0)
    assert after["status"]["progress"]["step"] >= before["status"]["progress"]["step"]


def test_argos_logs_of_the_trainers_are_those_of_the_job(workflows: Workflows, training: str) -> None:
    lines = workflows.argo("logs", training, "--container=trainer", "--no-color").splitlines()
    pods = {line.partition(":")[0] for line in lines}
    assert pods == {f"{training}-train-1-0", f"{training}-train-1-1"}


def test_a_stopped_workflow_suspends_its_job_and_a_retried_one_goes_on_from_the_checkpoint(
    workflows: Workflows, training: str
) -> None:
    job = f"{training}-train"
    workflows.argo("stop", training)
    assert workflows.wait_for_end(training)["phase"] == "Failed"
    suspended = workflows.jobs.wait(job, "suspension", lambda status: status["phase"] == "Suspended")
    workflows.argo("retry", training)
    again = workflows.jobs.wait_for_checkpoint_of(job, 2)
    assert again["attempts"][1]["resumedFromStep"] == suspended["latestCheckpoint"]["step"] > 0
    workflows.wait_for_argos_pod(training)


def test_a_deleted_workflow_takes_its_job_with_it(workflows: Workflows, training: str) -> None:
    job = f"{training}-train"
    workflows.cluster.kubectl("delete", "workflow", training)
    workflows.cluster.kubectl("wait", "--for=delete", f"trainingjob/{job}", patience.KUBECTL)
    workflows.cluster.kubectl("wait", "--for=delete", "pod", "-l", f"oarlock.dev/job={job}", patience.KUBECTL)


def test_a_job_that_fails_fails_its_step_once_and_nothing_comes_after_it(workflows: Workflows) -> None:
    name = workflows.submit(base=BASE, data="/output/nothing")
    status = workflows.wait_for_end(name)
    assert status["phase"] == "Failed", messages(status)
    assert phases(status) == {"preprocess": "Failed", "preprocess(0)": "Failed"}
    assert messages(status)["preprocess(0)"] == JOB_FAILED
    job = workflows.job(f"{name}-preprocess")
    assert (job["status"]["phase"], job["spec"]["suspend"]) == ("Failed", True)


@pytest.mark.usefixtures("training")
def test_the_workflows_account_used_each_right_that_the_chart_gives_it_and_asked_for_no_other(
    workflows: Workflows,
) -> None:
    have = granted(render(built(HELM), RIGHTS), ACCOUNT)
    want = asked(workflows.cluster.audit_log, f"system:serviceaccount:default:{ACCOUNT}")
    assert {right.anywhere() for right in never_used(have, want)} == {OF_AN_ADMISSION_PLUGIN}
    assert not not_had(have, want)
