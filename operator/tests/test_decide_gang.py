"""Gangs under a gang system: the choice is frozen, a queue is no delay, groups go with their attempts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from jobs import job, spec
from world_writes import Killed
from worlds import World, condition

from oarlock_api.scheduling import Gang
from oarlock_operator.decide import decide
from oarlock_operator.marks import Mark
from oarlock_operator.observation import GangSystems, Node

VOLCANO = GangSystems(apis={Gang.VOLCANO: "scheduling.volcano.sh/v1beta1"})
KUEUE = GangSystems(apis={Gang.KUEUE: "kueue.x-k8s.io/v1beta2"})
NATIVE = GangSystems(apis={Gang.NATIVE: "scheduling.k8s.io/v1beta1"})


def queued(**changes: object) -> World:
    """A job in a Kueue queue whose pods are gated."""
    wanted = spec(scheduling={"queue": "team", "placementTimeoutSeconds": 60}, **changes)
    world = World(job=job(spec=wanted), systems=KUEUE)
    world.settle()
    gate(world, gated=True)
    world.settle()
    return world


def gate(world: World, *, gated: bool) -> None:
    """What Kueue does to the pods of the current attempt."""
    for name, pod in world.pods.items():
        if pod.attempt == world.job.status.attempt:
            words = "Scheduling is blocked due to non-empty scheduling gates" if gated else ""
            world.pods[name] = replace(pod, gated=gated, grouped=True, obstacle=words)


def hold(world: World, words: str) -> None:
    """What Volcano or KAI says of the current attempt's group; empty where it lets it in."""
    number = world.job.status.attempt
    world.groups[number] = replace(world.groups[number], waits=words)


def stages(world: World, attempt: int = 1) -> dict[str, int | None]:
    record = next(a for a in world.job.status.attempts if a.number == attempt)
    return record.stage_milliseconds.model_dump()


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


def end_all(world: World, code: int) -> None:
    """Every rank that may still run ends."""
    for pod in list(world.pods.values()):
        if pod.attempt == world.job.status.attempt and not pod.stopped:
            world.end(pod.rank, code)


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


def test_time_in_a_queue_is_a_stage_of_its_own_and_no_delay_of_the_scheduler() -> None:
    world = queued()
    assert world.job.status.phase == "Queued"
    assert condition(world, "Scheduled") == ("False", "Queued")
    assert (world.job.status.reason, world.job.status.message) == ("Queued", "in the queue team")
    world.now += timedelta(hours=2)
    world.settle()
    assert world.job.status.attempt == 1, "placementTimeoutSeconds has not begun"
    gate(world, gated=False)
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Starting", "Starting")
    took = stages(world)["queue"] or 0
    assert 7_200_000 <= took < 7_201_000
    world.now += timedelta(seconds=61)
    world.one_pass()
    assert world.job.status.attempts[-1].reason == "PlacementTimeout"


def test_time_in_a_queue_counts_neither_as_active_nor_as_gpu_time() -> None:
    world = queued(activeDeadlineSeconds=600)
    world.now += timedelta(hours=2)
    world.settle()
    gate(world, gated=False)
    world.settle()
    assert 7_200 <= world.job.status.inactive_seconds <= 7_201
    world.start_all()
    world.settle()
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert world.job.status.phase == "Succeeded"
    assert world.job.status.gpu_seconds <= 4


def test_a_job_that_is_suspended_in_its_queue_keeps_what_it_waited() -> None:
    world = queued()
    world.now += timedelta(hours=1)
    world.job = replace(world.job, spec=spec(suspend=True, scheduling={"queue": "team"}))
    world.settle()
    assert world.job.status.phase == "Suspended"
    assert (stages(world)["queue"] or 0) >= 3_600_000
    assert world.job.status.inactive_seconds >= 3600


def test_a_group_that_its_queue_holds_back_waits_though_no_pod_is_gated() -> None:
    world = World(systems=VOLCANO)
    world.settle()
    hold(world, "32 of 16 GPUs asked for")
    world.now += timedelta(hours=1)
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt) == ("Queued", 1)
    assert "32 of 16 GPUs" in (world.job.status.message or "")
    hold(world, "")
    world.settle()
    assert world.job.status.phase == "Starting"


def test_pods_that_kueue_takes_back_start_again_and_cost_no_budget() -> None:
    world = queued()
    gate(world, gated=False)
    world.settle()
    world.running(saved=1)
    for name, pod in world.pods.items():
        until = world.now + timedelta(seconds=300)
        world.pods[name] = replace(pod, deleting=True, delete_by=until, disrupted="StoppedByKueue")
    world.one_pass()
    assert world.job.status.attempt == 1, "they save"
    for rank in (0, 1):
        world.end(rank, 86)
    world.settle()
    status = world.job.status
    assert (status.attempt, status.attempts[-1].reason) == (2, "Evicted")
    assert (status.restarts.infrastructure, status.restarts.application, status.restarts.voluntary) == (0, 0, 1)


def test_a_pod_that_was_gated_and_is_being_deleted_holds_nobody_up() -> None:
    world = queued()
    for name, pod in world.pods.items():
        world.pods[name] = replace(pod, deleting=True, disrupted="StoppedByKueue")
    world.settle()
    assert sorted(name for name in world.pods if name.startswith("flux-2")) == ["flux-2-0", "flux-2-1"]


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
    assert (world.job.status.phase, world.pods) == ("Failed", {})
    assert condition(world, "Accepted") == ("False", reason)


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


def test_a_group_that_waits_without_pods_keeps_its_place_in_the_queue() -> None:
    denied = 'admission webhook "validatepod.volcano.sh" denied the request: the podgroup phase is Pending'
    world = World(systems=VOLCANO)
    world.one_pass()
    world.pods.clear()
    world.hindrance = denied
    hold(world, "32 of 16 GPUs asked for")
    world.now += timedelta(hours=1)
    world.one_pass()
    assert (world.job.status.attempt, set(world.groups)) == (1, {1})
    world.pods.clear()
    hold(world, "")
    world.one_pass()
    assert world.job.status.attempt == 2, "let in, it has its time to be placed"


def test_a_gang_in_a_queue_is_looked_at_less_often_than_one_that_trains() -> None:
    world = queued()
    world.now += timedelta(hours=1)
    assert world.one_pass().again_seconds == 60
    gate(world, gated=False)
    world.running()
    assert world.one_pass().again_seconds == 10


def test_a_gang_of_a_queue_leaves_no_node_for_the_end_of_its_queue() -> None:
    moves = {}
    for name, systems in {"Volcano": VOLCANO, "Native": NATIVE}.items():
        world = World(systems=systems)
        world.running()
        world.nodes = {"node-0": Node(name="node-0", mark=Mark("cordoned", enforced=True))}
        moves[name] = decide(world.observe()).wants_spares
    assert moves == {"Volcano": False, "Native": True}
