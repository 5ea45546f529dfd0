"""Deadlines, retention, and gangs that find no room."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_operator.decide import decide
from oarlock_operator.model.plan import DeleteJob, DeletePods


def obstruct(world: World, rank: int, obstacle: str, **changes: object) -> None:
    name = f"flux-{world.job.status.attempt}-{rank}"
    world.pods[name] = replace(world.pods[name], obstacle=obstacle, **changes)


def place(world: World) -> None:
    world.pods = {
        name: replace(pod, scheduled=True, node=f"node-{pod.rank}") if pod.attempt == world.job.status.attempt else pod
        for name, pod in world.pods.items()
    }


def test_the_active_deadline_ends_the_job_and_lets_it_save() -> None:
    world = World(job=job(spec=spec(activeDeadlineSeconds=600)))
    world.running()
    assert 0 < (decide(world.observe()).again_seconds or 0) <= 10
    world.now += timedelta(seconds=600)
    plan = decide(world.observe())
    assert [action.grace_seconds for action in plan.actions if isinstance(action, DeletePods)] == [None]
    world.one_pass()
    assert world.job.status.completion_time is None, "the pods still save"
    world.kubelets()
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason, status.failed) == ("Failed", "DeadlineExceeded", 1)


def test_a_placed_gang_that_never_comes_up_fails_with_the_kubelets_words() -> None:
    world = World(job=job(spec=spec(startupDeadlineSeconds=300)))
    world.settle()
    place(world)
    obstruct(world, 1, "ImagePullBackOff: no such image oarlock/trainr", scheduled=True)
    world.settle()
    assert condition(world, "Running") == ("False", "ImagePullBackOff")
    world.now += timedelta(seconds=299)
    world.settle()
    assert world.job.status.phase == "Starting"
    world.now += timedelta(seconds=2)
    world.settle()
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "StartupDeadlineExceeded")
    assert "no such image oarlock/trainr" in (status.message or "")


def test_what_a_pod_waits_for_is_the_first_thing_that_people_read_and_goes_when_it_does() -> None:
    world = World()
    world.settle()
    obstruct(world, 1, "0/3 nodes are available: persistentvolumeclaim not found")
    told = [event for event in world.one_pass().events if event.reason == "Unschedulable"]
    assert len(told) == 1
    assert (world.job.status.reason, world.job.status.phase) == ("Unschedulable", "Starting")
    assert "persistentvolumeclaim not found" in (world.job.status.message or "")
    assert not world.one_pass().events, "told once"
    obstruct(world, 1, "ErrImagePull: denied", scheduled=True)
    world.settle()
    assert (world.job.status.reason, world.job.status.message) == ("ErrImagePull", "ErrImagePull: denied")
    obstruct(world, 1, "", scheduled=True)
    world.settle()
    assert (world.job.status.reason, world.job.status.message) == ("Starting", None)


def test_an_image_name_that_can_never_work_fails_at_once() -> None:
    world = World()
    world.settle()
    place(world)
    obstruct(world, 0, "InvalidImageName: couldn't parse image reference", scheduled=True)
    world.settle()
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "InvalidImageName")


def test_a_pod_whose_program_its_runtime_does_not_find_ends_the_job_at_once() -> None:
    world = World()
    world.settle()
    place(world)
    said = "CreateContainerError: container create failed: executable file `oarlock-trainer` not found in $PATH"
    obstruct(world, 0, said, scheduled=True)
    world.settle()
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "ConfigurationError")
    assert "spec.pod.image has to be the trainer image" in (world.job.status.message or "")


SYSTEMD_RUN = 'MountVolume.SetUp failed: mount failed: exec: "systemd-run": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("said", "event"),
    [
        (f"FailedMount: {SYSTEMD_RUN}", False),
        ("CreateContainerError: executable file `oarlock-trainer` not found in $PATH", True),
        ("InvalidImageName: no", True),
    ],
    ids=["a tool of the node's", "an Event", "an Event about the image"],
)
def test_neither_a_node_s_own_tools_nor_what_anybody_may_write_into_an_event_end_a_job(
    said: str,
    event: bool,  # noqa: FBT001
) -> None:
    world = World()
    world.settle()
    place(world)
    obstruct(world, 0, said, scheduled=True, by_event=event)
    world.settle()
    assert (world.job.status.phase, world.job.status.completion_time) == ("Starting", None)


def test_a_gang_that_is_not_wholly_placed_in_time_gives_way_as_a_whole_without_budget() -> None:
    world = World(job=job(spec=spec(scheduling={"placementTimeoutSeconds": 60})))
    world.settle()
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], scheduled=True, started=True, node="node-0")
    obstruct(world, 1, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")
    world.settle()
    assert condition(world, "Scheduled") == ("False", "Unschedulable")
    world.now += timedelta(seconds=61)
    plan = world.one_pass()
    told = next(event.message for event in plan.events if event.reason == "PlacementTimeout")
    assert "1 of 2 pods" in told
    assert "Insufficient nvidia.com/gpu" in told
    status = world.job.status
    assert (status.attempt, status.restart_count, status.restarts.infrastructure) == (2, 0, 0)
    assert status.recovery.not_before_time is not None
    assert status.recovery.not_before_time > world.now
    world.kubelets()
    world.settle()
    assert world.pods == {}, "its nodes are free while it waits"
    world.now += timedelta(seconds=60)
    world.settle()
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]


def test_pods_that_a_queue_holds_back_start_no_timeout() -> None:
    world = World(job=job(spec=spec(scheduling={"placementTimeoutSeconds": 60})))
    world.settle()
    world.pods = {name: replace(pod, gated=True) for name, pod in world.pods.items()}
    world.now += timedelta(seconds=3600)
    world.settle()
    assert world.job.status.attempt == 1


def test_a_gang_that_a_quota_refuses_gives_way_too() -> None:
    world = World(job=job(spec=spec(scheduling={"placementTimeoutSeconds": 60})), hindrance="exceeded quota: gpus")
    world.one_pass()
    del world.pods["flux-1-1"]
    world.now += timedelta(seconds=61)
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.attempts[-1].reason) == (2, "PlacementTimeout")


def test_an_operator_that_was_away_tries_before_it_gives_way() -> None:
    world = World(job=job(spec=spec(scheduling={"placementTimeoutSeconds": 60})))
    world.one_pass()
    world.pods.clear()
    world.now += timedelta(seconds=3600)
    world.one_pass()
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1"]


def finished(world: World) -> World:
    world.running()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    return world


def test_a_finished_job_goes_when_its_time_is_over_and_not_before() -> None:
    world = finished(World(job=job(spec=spec(ttlSecondsAfterFinished=60))))
    plan = decide(world.observe())
    assert plan.actions == ()
    assert plan.status is None
    assert 50 < (plan.again_seconds or 0) <= 60
    world.now += timedelta(seconds=61)
    assert decide(world.observe()).actions == (DeleteJob("flux", "uid-1"),)
    world.one_pass()
    assert world.deleted


def test_a_finished_job_without_a_ttl_stays() -> None:
    world = finished(World())
    world.now += timedelta(days=365)
    plan = decide(world.observe())
    assert (plan.actions, plan.status, plan.again_seconds) == ((), None, None)


def test_restarts_that_bring_no_newer_checkpoint_end_the_job() -> None:
    budgets = {"maxApplicationRestarts": 99, "maxRestartsWithoutProgress": 2, "backoffSeconds": 0}
    world = World(job=job(spec=spec(recovery=budgets)))
    for count in range(3):
        world.running()
        world.end(1, 1)
        world.settle()
        world.kubelets()
        world.settle()
        assert world.job.status.restarts.without_progress == min(count + 1, 2)
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "NoProgress")


def test_a_newer_checkpoint_forgets_what_was_in_vain() -> None:
    world = World(job=job(spec=spec(recovery={"maxRestartsWithoutProgress": 1, "backoffSeconds": 0})))
    world.running()
    world.end(1, 1)
    world.settle()
    world.kubelets()
    world.running(step=30, saved=25)
    world.end(1, 1)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.restarts.without_progress, status.restarts.application) == (3, 0, 1)


def test_nodes_evictions_storage_and_failed_starts_are_not_in_vain() -> None:
    world = World(job=job(spec=spec(recovery={"maxRestartsWithoutProgress": 0, "backoffSeconds": 0})))
    for code in (84, 87, 86):
        world.running()
        if code == 86:
            name = f"flux-{world.job.status.attempt}-1"
            world.pods[name] = replace(world.pods[name], disrupted="EvictionByEvictionAPI", deleting=True)
        world.end(1, code)
        world.settle()
        world.kubelets()
        world.now += timedelta(seconds=301)
        world.settle()
    assert world.job.status.attempt == 4


def test_a_gang_whose_pods_all_have_words_of_their_own_still_ends() -> None:
    """The API takes no status whose message is longer than 8192 characters; the world checks it at each write."""
    world = World(job=job(spec=spec(nodes=64, startupDeadlineSeconds=300)))
    world.settle()
    place(world)
    for rank in range(64):
        obstruct(world, rank, f"FailedMount: node-{rank} {'cannot reach the server ' * 20}", scheduled=True)
    world.settle()
    world.now += timedelta(seconds=301)
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "StartupDeadlineExceeded")
