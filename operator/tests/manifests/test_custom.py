"""Jobs that bring their own trainer: the agent comes into their image, and they live and end as others do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.job_file import parse_job_file
from oarlock_api.contract.sections import Custom as Program
from oarlock_api.contract.status import PodStatus
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.config import job_file
from oarlock_operator.manifests.pod import pod

COMMAND = ["accelerate", "launch", "--config_file", "/run/oarlock/accelerate.yaml"]
IMAGE = "ghcr.io/somebody/trainer:7"
ASKED: dict[str, Any] = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}


def custom(**changes: Any) -> TrainingJobSpec:
    program = {"command": COMMAND, "args": ["train.py"], "workingDir": "/output/mine"}
    return spec(training=None, custom=program, **{"pod": {"image": IMAGE}, **changes})


def world(**changes: Any) -> World:
    return World(job=job(spec=custom(**changes)))


def made(rank: int = 0, **changes: Any) -> dict[str, Any]:
    return pod(job(), custom(**changes), attempt=1, rank=rank, image=IMAGE, agent_image="oarlock/trainer:1")


# The pod


def test_the_end_of_a_program_s_log_is_never_taken_for_its_last_words() -> None:
    """It may hold what the program prints of its secrets; what the agent writes has them struck out."""
    assert "terminationMessagePolicy" not in made(pod={"image": IMAGE})["spec"]["containers"][0]


def test_the_operators_own_image_writes_the_agent_before_the_jobs_image_runs_it() -> None:
    init = made(pod={"image": IMAGE, "resources": ASKED})["spec"]["initContainers"]
    assert init == [
        {
            "name": "oarlock-agent",
            "image": "oarlock/trainer:1",
            "command": ["oarlock-trainer", "export-agent", "/run/oarlock"],
            "resources": ASKED,
            "volumeMounts": [{"name": "oarlock-run", "mountPath": "/run/oarlock"}],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
        }
    ]


def test_the_agent_is_the_first_process_of_the_jobs_image_and_the_images_packages_stay_out_of_it() -> None:
    container = made()["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("trainer", IMAGE)
    assert container["command"] == ["python3", "-I", "-S", "/run/oarlock/agent.pyz"]
    assert "args" not in container


def test_but_for_its_image_its_command_its_root_and_its_last_words_a_pod_is_as_any_other() -> None:
    own, usual = made()["spec"], pod(job(), spec(), attempt=1, rank=0, image=IMAGE)["spec"]
    own.pop("initContainers")
    assert own["containers"][0].pop("command") != usual["containers"][0].pop("command")
    assert own["containers"][0]["securityContext"].pop("readOnlyRootFilesystem") is False
    assert usual["containers"][0]["securityContext"].pop("readOnlyRootFilesystem") is True
    assert usual["containers"][0].pop("terminationMessagePolicy") == "FallbackToLogsOnError"
    assert own == usual


def test_all_ranks_pods_are_alike_here_too() -> None:
    def shape(rank: int) -> str:
        manifest = made(rank)
        manifest["spec"]["containers"][0].pop("env")
        return json.dumps([manifest["spec"]["initContainers"], manifest["spec"]["containers"]])

    assert shape(0) == shape(1) == shape(31)


def test_a_job_with_the_built_in_trainer_has_no_init_container() -> None:
    assert "initContainers" not in pod(job(), spec(), attempt=1, rank=0, image="i", agent_image="a")["spec"]


def test_job_json_tells_the_command_and_no_training() -> None:
    facts = parse_job_file(job_file(job(), custom(), 1).to_json())
    assert facts.training == {}
    assert facts.custom == Program(command=tuple(COMMAND), args=("train.py",), working_dir="/output/mine")


# Its life


def test_it_is_accepted_and_its_pods_are_given_the_operators_agent() -> None:
    here = world()
    plan = here.one_pass()
    assert condition(here, "Accepted")[0] == "True"
    assert "trainer:test" in str(plan.actions)
    here.settle()
    assert len(here.pods) == 2


def test_it_succeeds_when_all_ranks_are_done_and_promises_no_model() -> None:
    here = world()
    here.running()
    for rank in range(2):
        here.end(rank, 0)
    here.settle()
    status = here.job.status
    assert (status.phase, status.succeeded) == ("Succeeded", 1)
    assert status.output is not None
    assert (status.output.path, status.output.model) == ("/output/flux", None)
    assert status.message == (
        "all 2 pods ended well; what the trainer made is where it put it; the job's output directory is /output/flux"
    )


def started(here: World) -> None:
    """All pods run, and nothing was told of a step."""
    here.settle()
    here.start_all()
    here.settle()
    assert here.job.status.recovery.stage == "FirstStep"


def silent(here: World) -> PodStatus:
    """What rank 0's agent says of a trainer that tells nothing."""
    here.step(1)
    assert here.progress is not None
    return replace(here.progress, phase="Starting", figures=Figures(), first_step_at="", resumed_from_step=None)


def test_without_a_word_about_steps_it_counts_as_training_after_half_an_hour() -> None:
    here = world()
    started(here)
    here.progress = silent(here)
    here.now += timedelta(seconds=1790)
    here.settle()
    assert here.job.status.recovery.stage == "FirstStep"
    here.now += timedelta(seconds=20)
    here.settle()
    status = here.job.status
    assert (status.phase, status.reason, status.recovery.stage) == ("Running", "Training", None)
    assert status.message == "it has run for 30 minutes and told of no step"
    assert status.attempts[0].stage_milliseconds.first_step is None


def test_a_built_in_trainer_that_is_silent_is_never_taken_for_training() -> None:
    here = World()
    started(here)
    here.progress = silent(here)
    here.now += timedelta(hours=2)
    here.settle()
    assert here.job.status.recovery.stage == "FirstStep"


def test_time_in_the_queue_and_in_image_pulls_is_no_running() -> None:
    here = world()
    here.settle()
    here.now += timedelta(seconds=1500)
    here.start_all()
    here.settle()
    here.progress = silent(here)
    here.now += timedelta(seconds=1000)
    here.settle()
    assert here.job.status.recovery.stage == "FirstStep"


def crash_after(here: World, seconds: float) -> None:
    """Another attempt, which runs for so long, and then fails."""
    started(here)
    here.now += timedelta(seconds=seconds)
    here.end(0, 1)
    here.settle()
    here.kubelets()
    here.now += timedelta(seconds=400)
    here.settle()


@pytest.mark.parametrize(("seconds", "phase"), [(1810, "Recovering"), (1700, "Failed")])
def test_thirty_minutes_of_running_are_progress_that_renews_the_budgets(seconds: float, phase: str) -> None:
    here = world(recovery={"maxApplicationRestarts": 1})
    for _ in range(2):
        crash_after(here, seconds)
    assert here.job.status.phase == phase


def test_steps_that_are_told_are_followed_as_any_others() -> None:
    here = world()
    here.running(step=5)
    status = here.job.status
    assert (status.phase, status.recovery.stage) == ("Running", None)
    assert status.attempts[0].stage_milliseconds.first_step == 4000
    assert status.progress is not None
    assert status.progress.step == 5


def test_a_checkpoint_of_its_report_has_no_path_that_nobody_knows() -> None:
    here = world()
    here.running(step=5)
    here.end(0, 86)
    here.end(1, 86)
    here.job = replace(here.job, spec=custom(suspend=True))
    ending = here.pods["flux-1-0"].ending
    assert ending is not None
    assert ending.report is not None
    said = replace(ending, report=replace(ending.report, step=9, checkpoint_step=8))
    here.pods["flux-1-0"] = replace(here.pods["flux-1-0"], ending=said)
    here.settle()
    status = here.job.status
    assert status.recovery.stage == "Suspended"
    assert status.latest_checkpoint is None
    assert status.progress is not None
    assert status.progress.step == 9


def test_gpu_seconds_of_a_trainer_that_tells_nothing_are_not_called_wasted() -> None:
    here = world()
    started(here)
    here.now += timedelta(seconds=600)
    for rank in range(2):
        here.end(rank, 0)
    here.settle()
    assert here.job.status.gpu_seconds >= 4 * 600
    assert here.job.status.wasted_gpu_seconds < 4
