"""Success: all ranks at zero, what it says was made, and what it waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition


def test_all_ranks_at_zero_is_success_with_the_models_path() -> None:
    world = World()
    world.running()
    world.end(0, 0)
    world.settle()
    assert world.job.status.phase == "Running", "one rank alone ends nothing"
    world.end(1, 0)
    world.settle()
    status = world.job.status
    assert (status.phase, status.succeeded, status.failed) == ("Succeeded", 1, 0)
    assert status.completion_time is not None
    assert status.output is not None
    assert status.output.model == "/output/flux/model"
    assert condition(world, "Finished") == ("True", "AllRanksSucceeded")


def test_the_last_step_and_checkpoint_are_those_that_rank_0_ended_with() -> None:
    world = World()
    world.running(step=80, saved=75)
    world.end(1, 0)
    world.end(0, 0)
    ending = world.pods["flux-1-0"].ending
    assert ending is not None
    assert ending.report is not None
    last = replace(ending.report, step=100, checkpoint_step=100)
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], ending=replace(ending, report=last))
    world.settle()
    status = world.job.status
    assert status.summary.step == "100/100"
    assert status.latest_checkpoint is not None
    assert status.latest_checkpoint.path == "/output/flux/checkpoints/step-100-a1"
    assert status.latest_checkpoint.relative_path == "flux/checkpoints/step-100-a1"


@pytest.mark.parametrize(
    ("task", "made"),
    [("Preprocess", "the embeddings are cached"), ("Evaluate", "judged in /output/flux/reports/evaluation.json")],
)
def test_a_task_that_does_not_train_succeeds_without_a_model(task: str, made: str) -> None:
    training = spec().to_manifest()["training"]
    del training["steps"]
    datasets = [{**one, "role": "Evaluation"} for one in training["data"]["datasets"]]
    body = {**training, "task": task, "data": {"datasets": datasets}}
    world = World(job=job(spec=spec(training=body)))
    world.settle()
    world.start_all()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert world.job.status.phase == "Succeeded"
    assert made in world.job.status.message
    assert world.job.status.output is not None
    assert world.job.status.output.model is None
    assert world.job.status.output.data_manifest == "/output/flux/reports/data.json"


def test_a_success_that_waits_for_an_older_gangs_pod_says_so() -> None:
    world = World()
    world.running()
    world.end(1, 81)
    world.settle()
    world.now += timedelta(seconds=36)
    world.settle()
    world.start_all()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert world.job.status.completion_time is None
    assert world.job.status.reason == "Stopping"
    assert "flux-1-0 on node-0" in (world.job.status.message or "")


def test_a_success_without_a_step_says_that_the_output_held_them_all() -> None:
    world = World()
    world.settle()
    world.start_all()
    world.settle()
    for rank in (0, 1):
        world.end(rank, 0)
    ending = world.pods["flux-1-0"].ending
    assert ending is not None
    assert ending.report is not None
    done = replace(ending.report, step=100, checkpoint_step=100)
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], ending=replace(ending, report=done))
    world.settle()
    assert "held the checkpoint of step 100 already" in (world.job.status.message or "")
