"""Gangs under a gang system: the choice is frozen, what is not there is waited for, groups go with their attempts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from gang_worlds import KAI, KUEUE, NATIVE, VOLCANO, end_all, queued
from jobs import job, spec
from world_writes import Killed
from worlds import World, condition

from oarlock_operator.model.observation import GangSystems


def test_what_auto_chose_at_the_start_is_kept_whatever_the_cluster_serves_later() -> None:
    world = World(systems=VOLCANO)
    world.running()
    assert world.job.status.resolved is not None
    assert (world.job.status.resolved.gang, world.job.status.resolved.scheduler_name) == ("Volcano", "volcano")
    world.systems = NATIVE
    world.end(1, 1)
    world.settle()
    world.kubelets()
    world.settle()
    assert [group.api for group in world.groups.values()] == ["scheduling.volcano.sh/v1beta1"]


def test_the_group_stands_before_the_first_pod_and_goes_after_the_last() -> None:
    world = World(systems=VOLCANO)
    world.settle()
    assert world.log.index("group 1") < world.log.index("pod flux-1-0")
    world.running()
    world.end(1, 1)
    world.one_pass()
    assert set(world.groups) == {1}, "rank 0 still saves"
    world.kubelets()
    world.settle()
    assert set(world.groups) == {2}
    world.running()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert (world.job.status.phase, world.groups) == ("Succeeded", {})


def test_a_suspended_job_has_no_group() -> None:
    world = World(systems=VOLCANO)
    world.running()
    world.job = replace(world.job, spec=spec(suspend=True))
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, world.groups) == ("Suspended", {})


def test_kueues_workload_is_its_own_and_never_deleted() -> None:
    world = queued()
    assert world.groups == {}
    assert not [line for line in world.log if "group" in line]


def live(world: World, act: Callable[[], None]) -> None:
    """Let something happen, with an operator that is started again where it dies."""
    for happens in (lambda: None, act):
        happens()
        for _ in range(2):
            with contextlib.suppress(Killed):
                world.settle()


@pytest.mark.parametrize("code", [0, 1, 85])
@pytest.mark.parametrize("kill_at", range(1, 24))
def test_an_operator_that_dies_between_two_writes_leaves_no_group_behind(code: int, kill_at: int) -> None:
    world = World(systems=VOLCANO, kill_at=kill_at)
    for ends in (code, 0):
        live(world, world.start_all)
        live(world, partial(end_all, world, ends))
        live(world, world.kubelets)
    assert world.job.status.completion_time is not None
    assert world.groups == {}


@pytest.mark.parametrize(
    ("systems", "scheduling", "words"),
    [(NATIVE, {"gang": "Native"}, "GenericWorkload"), (KUEUE, {"queue": "team"}, "externalFrameworks")],
)
def test_pods_that_the_cluster_does_not_take_for_a_gang_are_told(
    systems: GangSystems, scheduling: dict[str, str], words: str
) -> None:
    world = World(job=job(spec=spec(scheduling=scheduling)), systems=systems)
    world.one_pass()
    told = [event for event in world.one_pass().events if event.reason == "GangIgnored"]
    assert len(told) == 1
    assert words in told[0].message
    assert condition(world, "Degraded") == ("True", "GangIgnored")
    world.pods = {name: replace(pod, grouped=True) for name, pod in world.pods.items()}
    world.settle()
    assert condition(world, "Degraded") == ("False", "AsExpected")


@pytest.mark.parametrize(
    ("scheduling", "labels", "reason"),
    [
        ({"gang": "KAI", "queue": "team"}, {}, "GangUnavailable"),
        ({"queue": "team"}, {}, "GangUnavailable"),
        ({"gang": "Volcano"}, {"kueue.x-k8s.io/queue-name": "team"}, "QueueMismatch"),
    ],
)
def test_a_job_whose_gang_cannot_be_is_not_accepted(
    scheduling: dict[str, str], labels: dict[str, str], reason: str
) -> None:
    world = World(job=job(spec=spec(scheduling=scheduling), labels=labels), systems=VOLCANO)
    world.settle()
    world.now += timedelta(seconds=61)
    world.settle()
    assert (world.job.status.phase, world.pods) == ("Failed", {})
    assert condition(world, "Accepted") == ("False", reason)


def test_a_gang_system_that_is_not_served_at_the_first_look_is_waited_for() -> None:
    """An API server that has just started may not serve all of its kinds yet."""
    world = World(job=job(spec=spec(scheduling={"gang": "Volcano"})))
    for _ in range(5):
        world.settle()
        assert (world.job.status.phase, condition(world, "Accepted")) == ("Pending", ("False", "GangUnavailable"))
        assert 0 < (world.one_pass().again_seconds or 0) <= 10, "nothing that is installed wakes anybody"
        world.now += timedelta(seconds=11)
    world.systems = VOLCANO
    world.settle()
    assert (world.job.status.phase, condition(world, "Accepted")) == ("Starting", ("True", "Accepted"))
    assert set(world.groups) == {1}


def test_a_job_that_is_resumed_into_a_gang_that_is_not_there_stays_suspended_until_it_is() -> None:
    world = World()
    world.running()
    world.job = replace(world.job, spec=spec(suspend=True))
    world.settle()
    world.kubelets()
    world.settle()
    world.job = replace(world.job, spec=spec(scheduling={"gang": "Volcano"}))
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Suspended", "GangUnavailable")
    assert condition(world, "Accepted") == ("False", "GangUnavailable")
    world.systems = VOLCANO
    world.settle()
    assert (world.job.status.phase, condition(world, "Accepted")) == ("Starting", ("True", "Accepted"))


def test_a_job_that_is_made_suspended_waits_for_its_gang_system_as_well() -> None:
    world = World(job=job(spec=spec(suspend=True, scheduling={"gang": "Volcano"})))
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Suspended", "Suspended")
    world.job = replace(world.job, spec=spec(scheduling={"gang": "Volcano"}))
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Suspended", "GangUnavailable")
    world.job = replace(world.job, spec=spec(suspend=True, scheduling={"gang": "Volcano"}))
    world.settle()
    assert (world.job.status.reason, condition(world, "Accepted")) == ("Suspended", ("True", "Accepted"))
    world.job, world.systems = replace(world.job, spec=spec(scheduling={"gang": "Volcano"})), VOLCANO
    world.settle()
    assert (world.job.status.phase, set(world.groups)) == ("Starting", {1})


@pytest.mark.parametrize("kill_at", range(1, 5))
def test_the_time_to_be_placed_begins_with_the_pods_and_not_with_an_operator_that_died_before_it_made_them(
    kill_at: int,
) -> None:
    world = World(job=job(spec=spec(scheduling={"placementTimeoutSeconds": 600})), kill_at=kill_at)
    with contextlib.suppress(Killed):
        world.settle()
    world.now += timedelta(hours=2)
    world.settle()
    assert (world.job.status.attempt, len(world.pods)) == (1, 2)
    world.now += timedelta(seconds=601)
    world.settle()
    assert [one.reason for one in world.job.status.attempts] == [None, "PlacementTimeout"]


@pytest.mark.parametrize("kill_at", range(1, 10))
def test_a_resume_into_another_gang_system_leaves_no_group_of_the_old_one(kill_at: int) -> None:
    world = World(systems=VOLCANO)
    world.running()
    world.job = replace(world.job, spec=spec(suspend=True))
    world.kill_at = world.writes + kill_at
    for happens in (lambda: None, world.kubelets):
        happens()
        try:
            world.settle()
        except Killed:
            # The next one dies as well, after its first write.
            world.kill_at = world.writes + 1
    world.job = replace(world.job, spec=spec(scheduling={"gang": "None"}))
    for _ in range(4):
        world.kubelets()
        with contextlib.suppress(Killed):
            world.settle()
    assert world.groups == {}
    assert (world.job.status.resolved and world.job.status.resolved.gang, world.job.status.attempt) == ("None", 2)


def test_a_pod_that_runs_though_its_job_is_suspended_does_not_keep_the_job_from_being_resumed() -> None:
    """As where the last request of an operator that was replaced came late."""
    world = World(systems=VOLCANO)
    world.running()
    late, group = world.pods["flux-1-1"], world.groups[1]
    world.job = replace(world.job, spec=spec(suspend=True))
    world.settle()
    world.kubelets()
    world.settle()
    world.pods["flux-1-1"], world.groups[1] = late, group
    world.job = replace(world.job, spec=spec())
    world.settle()
    world.kubelets()
    world.settle()
    assert (sorted(world.pods), set(world.groups)) == (["flux-2-0", "flux-2-1"], {2})


@pytest.mark.parametrize(("gang", "reason", "charged"), [("KAI", "Evicted", 0), ("Volcano", "PodDisappeared", 1)])
@pytest.mark.parametrize("started", [False, True])
def test_a_pod_that_is_deleted_without_a_word_was_preempted_where_its_scheduler_says_nothing_of_it(
    gang: str, reason: str, charged: int, *, started: bool
) -> None:
    systems = GangSystems(apis={**KAI.apis, **VOLCANO.apis})
    world = World(job=job(spec=spec(scheduling={"gang": gang, "queue": "team"})), systems=systems)
    world.running()
    for name, pod in world.pods.items():
        # As the watch saw them last: both are gone when the next pass looks.
        world.pods[name] = replace(pod, started=started, deleting=True, gone=True)
    world.one_pass()
    status = world.job.status
    assert (status.attempt, status.attempts[-1].reason) == (2, reason)
    assert (status.restarts.infrastructure, status.restarts.voluntary) == (charged, 1 - charged)


def test_what_a_deleted_pod_says_itself_counts_also_under_a_scheduler_that_deletes_to_preempt() -> None:
    world = World(job=job(spec=spec(scheduling={"gang": "KAI", "queue": "team"})), systems=KAI)
    world.running()
    for name, pod in world.pods.items():
        world.pods[name] = replace(pod, deleting=True, delete_by=world.now)
    world.end(1, 1)
    world.one_pass()
    assert world.job.status.attempts[-1].reason == "ApplicationError"
    assert world.job.status.restarts.application == 1


def test_a_pod_that_vanished_unseen_is_charged_whatever_its_scheduler() -> None:
    world = World(job=job(spec=spec(scheduling={"gang": "KAI", "queue": "team"})), systems=KAI)
    world.running()
    del world.pods["flux-1-1"]
    world.one_pass()
    assert world.job.status.restarts.infrastructure == 1
