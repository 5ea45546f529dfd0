"""Decisions while somebody else acts on the pods, the job or the cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_operator.decide import decide
from oarlock_operator.model.observation import ServiceSeen
from oarlock_operator.model.plan import CreatePods, DeletePods


def test_a_pod_that_somebody_else_deletes_has_its_grace_to_save_and_teardown_seconds_more() -> None:
    world = World()
    world.running()
    gone_by = world.now + timedelta(seconds=300)
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], deleting=True, delete_by=gone_by)
    world.one_pass()
    assert world.job.status.attempt == 1
    world.now = gone_by + timedelta(seconds=31)
    world.one_pass()
    assert world.job.status.attempt == 2


def test_peers_of_a_pod_that_left_on_request_get_their_own_grace_to_save() -> None:
    world = World()
    world.running()
    world.end(0, 86)
    plan = decide(world.observe())
    assert plan.actions == (DeletePods((("flux-1-1", world.pods["flux-1-1"].uid),), None),)
    world.one_pass()
    world.now += timedelta(seconds=200)
    assert not any(isinstance(action, CreatePods) for action in decide(world.observe()).actions)


def test_a_running_job_that_is_edited_goes_on_as_it_was_accepted() -> None:
    world = World()
    world.running()
    world.job = replace(world.job, spec=spec(scheduling={"gang": "Volcano"}))
    world.settle()
    assert world.job.status.phase == "Running"
    world.job = replace(world.job, spec=None, problem="spec.nodes: odd")
    world.settle()
    assert world.job.status.phase == "Running"
    assert not any(pod.deleting for pod in world.pods.values())


def test_pods_that_a_policy_or_quota_refuses_are_told_once_and_tried_again() -> None:
    world = World(hindrance="exceeded quota: gpus")
    first = world.one_pass()
    assert [event.message for event in first.events if event.reason == "CreateRefused"]
    assert condition(world, "Scheduled") == ("False", "CreateRefused")
    assert (world.job.status.reason, "exceeded quota: gpus" in (world.job.status.message or "")) == (
        "CreateRefused",
        True,
    )
    world.pods.clear()
    second = decide(world.observe())
    assert any(isinstance(action, CreatePods) for action in second.actions)
    assert not [event for event in second.events if event.reason == "CreateRefused"]


def test_once_the_pods_are_taken_the_status_says_so_no_more() -> None:
    world = World(hindrance="exceeded quota: gpus")
    world.one_pass()
    world.hindrance = ""
    world.settle()
    assert (world.job.status.reason, world.job.status.message) == ("Starting", None)


def test_what_the_api_server_took_before_and_calls_invalid_now_is_tried_again() -> None:
    # Somebody's mutator has changed the pods in between.
    world = World()
    world.running()
    world.end(0, 1)
    world.settle()
    world.kubelets()
    world.refusal = 'Pod "flux-2-0" is invalid: spec.nodeSelector: Invalid value: "gpu nodes!"'
    world.now += timedelta(seconds=400)
    world.one_pass()
    assert (world.job.status.phase, world.job.status.reason) == ("Recovering", "CreateRefused")
    world.refusal = ""
    world.settle()
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]
    assert world.job.status.reason == "ApplicationError"


def test_a_pod_that_is_not_there_yet_is_created_and_is_no_fault() -> None:
    world = World()
    world.one_pass()
    del world.pods["flux-1-1"]
    world.settle()
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1"]
    assert world.job.status.attempt == 1


@pytest.mark.parametrize("code", [0, 1])
def test_a_pod_that_went_before_it_was_known_that_all_were_made_is_not_made_again_beside_one_that_has_ended(
    code: int,
) -> None:
    world = World()
    world.one_pass()
    world.end(0, code)
    del world.pods["flux-1-1"]
    world.settle()
    assert world.job.status.attempt == 2
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]


def test_a_pod_that_never_stops_does_not_block_recovery_for_ever() -> None:
    world = World()
    world.running()
    world.end(1, 81)
    world.one_pass()
    stuck = replace(world.pods["flux-1-0"], deleting=True)
    world.now += timedelta(seconds=36)
    plan = decide(world.observe())
    assert any(isinstance(action, CreatePods) for action in plan.actions)
    assert any(event.reason == "PodNotStopping" and stuck.name in event.message for event in plan.events)


def test_pods_of_a_status_that_was_lost_are_stopped_and_their_number_is_not_used_again() -> None:
    world = World()
    world.running()
    world.job = job()
    world.service = ServiceSeen("service-1", ours=True, attempt=1)
    plan = world.one_pass()
    assert world.job.status.attempt == 0
    assert isinstance(plan.actions[0], DeletePods)
    world.kubelets()
    world.settle()
    assert all(pod.attempt >= 1 for pod in world.pods.values())
