"""Spares: pods beyond the gang's nodes. They are made where they can take a place, and nothing waits for them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gang_worlds import KUEUE, gate
from jobs import job, spec
from worlds import World, condition

from oarlock_api.contract.job_file import parse_job_file
from oarlock_api.contract.names import JOB_FILE_ANNOTATION
from oarlock_api.scheduling import Gang
from oarlock_operator import schedulers
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observation import Defaults, Ending, Pod
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import CreatePods, Plan
from oarlock_operator.schedulers import none

KEYLESS = Defaults(trainer_image="trainer:test")
KEYED = replace(KEYLESS, keys=(b"k" * 32,))
NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def gang(*, spares: int = 1, defaults: Defaults = KEYED, **changes: Any) -> World:
    """A job of two nodes with spares; none of its pods is made yet."""
    world = World(job=job(spec=spec(spares=spares, recovery={"inPlace": "Auto"}, **changes)))
    world.defaults = defaults
    return world


def start(world: World, *ranks: int) -> None:
    """Scheduler and kubelets bring up these pods alone."""
    for rank in ranks:
        pod = world.pod(rank)
        world.pods[pod.name] = replace(
            pod, node=f"node-{rank}", address="10.0.0.1", scheduled=True, started=True, ready=True
        )


def trains(world: World, *members: int, step: int = 20) -> Plan:
    """Rank 0's agent tells of a step, and of the round's pods where they are not the usual ones."""
    world.step(step)
    assert world.progress is not None
    world.progress = replace(world.progress, members=members)
    return world.one_pass()


def names(world: World) -> list[str]:
    return sorted(world.pods)


def told(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.made[name]["metadata"]["annotations"][JOB_FILE_ANNOTATION])
    return found


# They are made


def test_spares_are_made_beside_the_gang_and_all_pods_are_told_of_them() -> None:
    world = gang(spares=2)
    world.settle()
    assert names(world) == ["flux-1-0", "flux-1-1", "flux-1-2", "flux-1-3"]
    assert {told(world, name)["spares"] for name in names(world)} == {2}
    assert {told(world, name)["nodes"] for name in names(world)} == {2}
    assert len({world.pods[name].made_from for name in names(world)}) == 1, "any of them may take a place"
    assert world.job.status.standby == (2, 3)
    assert world.job.status.attempts[-1].node_count == 4


def test_spares_are_asked_for_after_all_others_and_the_gang_does_without_those_that_a_quota_refuses() -> None:
    world = gang()
    made = [action for _ in range(4) for action in world.one_pass().actions if isinstance(action, CreatePods)]
    ranks = [[one["metadata"]["labels"]["oarlock.dev/rank"] for one in action.manifests] for action in made]
    assert (ranks, [action.optional for action in made]) == ([["0", "1"], ["2"]], [False, True])


def test_a_job_without_spares_tells_its_pods_nothing_of_any() -> None:
    world = gang(spares=0)
    world.settle()
    assert not {"spares", "elastic"} & told(world, "flux-1-0").keys()
    assert world.job.status.standby == ()


def test_pods_of_an_elastic_gang_are_told_the_smallest_size_and_the_patience() -> None:
    training = spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 8}
    world = gang(spares=0, training=training, elastic={"minNodes": 1, "patienceSeconds": 45})
    world.settle()
    assert told(world, "flux-1-1")["elastic"] == {"minNodes": 1, "patienceSeconds": 45}
    elastic = parse_job_file(json.dumps(told(world, "flux-1-1"))).elastic
    assert elastic is not None
    assert elastic.patience_seconds == 45


@pytest.mark.parametrize("lacking", ["key", "gang system"])
def test_where_pods_are_not_made_anew_one_by_one_there_are_no_spares_and_the_job_says_why(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = gang(defaults=KEYED if lacking == "gang system" else KEYLESS)
    if lacking == "gang system":
        monkeypatch.setitem(schedulers.SYSTEMS, Gang.NONE, replace(none.SYSTEM, replaces_pods=False))
    world.running()
    assert names(world) == ["flux-1-0", "flux-1-1"]
    assert not {"spares", "elastic"} & told(world, "flux-1-0").keys()
    assert condition(world, "Degraded") == ("True", "SparesLacking")
    (said,) = [one.message for one in world.job.status.conditions if one.type == "Degraded"]
    assert said.startswith("without effect: spec.spares, because ")
    assert ("no keys" if lacking == "key" else "the gang system None") in said


def test_an_attempt_keeps_the_spares_that_it_was_begun_with_whatever_the_operator_is_given_meanwhile() -> None:
    world = gang(defaults=KEYLESS)
    world.running()
    world.defaults = KEYED
    world.settle()
    assert names(world) == ["flux-1-0", "flux-1-1"]
    assert world.job.status.attempt == 1


# Nothing waits for them


def test_a_gang_starts_and_trains_while_its_spare_finds_no_node() -> None:
    world = gang()
    world.settle()
    start(world, 0, 1)
    world.pods["flux-1-2"] = replace(world.pod(2), obstacle=NO_ROOM)
    world.settle()
    assert world.job.status.recovery.stage == "FirstStep"
    assert condition(world, "Scheduled") == ("True", "AllPodsPlaced")
    trains(world)
    world.now += timedelta(hours=2)
    trains(world, step=21)
    status = world.job.status
    assert (status.phase, status.attempt, status.reason) == ("Running", 1, "Training")
    assert (status.ranks.ready, status.ranks.spares, status.summary.nodes) == (2, 0, "2/2")
    (said,) = [one.message for one in status.conditions if one.type == "Degraded"]
    assert said == f"spares that could take no place now: flux-1-2 waits for a node: {NO_ROOM}"
    (placed,) = [one for one in status.conditions if one.type == "Scheduled"]
    assert (placed.status, placed.message) == ("True", f"no node yet for pods that stand by: flux-1-2: {NO_ROOM}")


def test_a_spare_that_waits_is_told_apart_from_the_nodes_that_train() -> None:
    world = gang()
    world.running()
    status = world.job.status
    assert (status.ranks.desired, status.ranks.ready, status.ranks.spares) == (2, 2, 1)
    assert status.summary.nodes == "2/2+1"
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_a_spare_alone_makes_no_gang() -> None:
    world = gang()
    world.settle()
    start(world, 0, 2)
    world.settle()
    assert world.job.status.recovery.stage == "Schedule"
    world.now += timedelta(hours=1)
    world.one_pass()
    assert world.job.status.reason == "PlacementTimeout"
    assert "1 of 2 pods found a node" in (world.job.status.message or "")


@pytest.mark.parametrize("stage", ["the start", "training"])
@pytest.mark.parametrize("how", ["ends", "is gone", "loses its node", "is evicted"])
def test_what_happens_to_a_spare_ends_no_attempt_and_costs_no_budget(how: str, stage: str) -> None:
    world = gang()
    world.settle()
    world.start_all()
    world.settle()
    if stage == "training":
        trains(world)
    spare = world.pod(2)
    if how == "ends":
        world.end(2, 80)
    elif how == "is gone":
        del world.pods[spare.name]
    elif how == "loses its node":
        world.nodes[spare.node] = Node(name=spare.node, exists=False)
    else:
        world.pods[spare.name] = replace(spare, disrupted="EvictionByEvictionAPI", ending=Ending(None))
    world.one_pass()
    trains(world, step=25)
    status = world.job.status
    assert (status.attempt, status.phase) == (1, "Running")
    assert status.restarts.infrastructure == status.restarts.application == status.restarts.voluntary == 0


def test_a_gang_does_not_move_off_a_node_on_which_only_its_spare_stands_by() -> None:
    world = gang()
    world.running()
    node = world.pod(2).node
    world.nodes[node] = Node(name=node, boot_id="1", maintenance=Maintenance("cordoned", enforced=True))
    world.spares = True
    trains(world)
    trains(world, step=21)
    assert world.job.status.attempt == 1


# A queue that counts them


def in_queue() -> World:
    """Pods for which Kueue counts the spare, too; none is made yet."""
    world = gang(scheduling={"gang": "Kueue", "queue": "team"})
    world.systems = KUEUE
    return world


def test_under_kueue_a_spare_that_was_not_made_is_asked_for_until_it_is_there() -> None:
    world = in_queue()
    plan = world.one_pass()
    (made,) = [action for action in plan.actions if isinstance(action, CreatePods)]
    assert (len(made.manifests), made.optional) == (3, False)
    del world.pods["flux-1-2"]
    world.hindrance = "exceeded quota: pods"
    plan = world.one_pass()
    assert [event.reason for event in plan.events] == ["CreateRefused"]
    assert "flux-1-2" in world.pods
    world.hindrance = ""
    world.settle()
    assert world.job.status.attempts[-1].created_time is not None


def test_under_kueue_a_spare_that_goes_while_the_gang_is_queued_is_a_new_attempt_and_later_it_is_none() -> None:
    world = in_queue()
    world.settle()
    gate(world, gated=True)
    world.settle()
    assert (world.job.status.attempt, world.job.status.recovery.stage) == (1, "Queue")
    queued = dict(world.pods)
    del world.pods["flux-1-2"]
    world.one_pass()
    assert world.job.status.attempt == 2
    world = in_queue()
    world.settle()
    world.pods = queued
    gate(world, gated=False)
    del world.pods["flux-1-2"]
    world.settle()
    assert world.job.status.attempt == 1


def test_a_spare_that_kueue_s_topology_ties_to_its_node_is_not_made_anew_and_the_job_says_why() -> None:
    world = in_queue()
    world.running()
    gate(world, gated=False)
    trains(world)
    world.end(2, 80, xid=79)
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], pinned=True)
    trains(world, step=21)
    world.settle()
    assert (names(world), world.job.status.attempt) == (["flux-1-0", "flux-1-1", "flux-1-2"], 1)
    (said,) = [one.message for one in world.job.status.conditions if one.type == "Degraded"]
    assert said.endswith("pod 2 of the gang is not there, and not made anew: Kueue ties each pod to its node")


# Who stands by


def test_who_trains_is_noted_as_rank_0_tells_it_and_kept_while_nobody_tells() -> None:
    world = gang()
    world.running()
    trains(world, 0, 2)
    assert world.job.status.standby == (1,)
    world.progress = None
    world.settle()
    assert world.job.status.standby == (1,)
    trains(world)
    assert world.job.status.standby == (2,)


@pytest.mark.parametrize("members", [(0,), (1, 2), (0, 7), (0, 1, 2)])
def test_a_round_that_the_job_cannot_have_is_not_believed(members: tuple[int, ...]) -> None:
    world = gang()
    world.running()
    trains(world, *members)
    assert world.job.status.standby == (2,)


def test_the_end_of_a_pod_that_took_a_place_is_a_fault() -> None:
    world = gang()
    world.running()
    trains(world, 0, 2)
    trains(world, 0, 2, step=21)
    world.progress = None
    world.end(2, 1)
    world.one_pass()
    assert world.job.status.last_fault is not None
    assert world.job.status.last_fault.rank == 2


# The end


def ended(world: World, *ranks: int) -> None:
    for rank in ranks:
        world.end(rank, 0)
        pod = world.pod(rank)
        assert pod.ending is not None
        world.pods[pod.name] = replace(pod, ending=replace(pod.ending, at=world.now))


def test_a_job_succeeds_once_all_that_trained_ended_well_and_its_spare_saw_it() -> None:
    world = gang()
    world.running()
    ended(world, 0, 1)
    world.settle()
    assert world.job.status.phase == "Running"
    assert not world.pod(2).deleting, "its agent sees that the gang is done"
    ended(world, 2)
    world.settle()
    assert world.job.status.phase == "Succeeded"
    assert "all 2 pods ended well" in (world.job.status.message or "")


def test_a_spare_that_does_not_see_that_the_gang_is_done_is_told_to_go() -> None:
    world = gang()
    world.running()
    ended(world, 0, 1)
    world.now += timedelta(seconds=16)
    world.one_pass()
    assert world.pod(2).deleting
    assert world.job.status.phase == "Running", "nothing of it may run any more"
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Succeeded"


@pytest.mark.parametrize("how", ["failed", "never started"])
def test_a_spare_that_broke_or_never_started_keeps_no_job_from_succeeding(how: str) -> None:
    world = gang()
    world.settle()
    start(world, 0, 1)
    if how == "failed":
        start(world, 2)
        world.end(2, 80)
    world.settle()
    trains(world)
    world.progress = None
    ended(world, 0, 1)
    world.settle()
    assert world.job.status.phase == "Succeeded"


def test_one_of_those_that_trained_must_end_well_though_a_spare_did() -> None:
    world = gang()
    world.running()
    ended(world, 0, 2)
    world.settle()
    assert world.job.status.phase == "Running"


# What they cost


def test_what_a_spare_holds_is_counted_and_wasted_as_long_as_it_stands_by() -> None:
    world = gang()
    world.running()
    began = world.job.status.attempts[-1].created_time
    assert began is not None
    wasted = world.job.status.wasted_gpu_seconds
    for step in range(10):
        world.now += timedelta(seconds=600)
        trains(world, step=step + 30)
    held = (world.now - began).total_seconds()
    assert abs(world.job.status.gpu_seconds - round(held * 6)) <= 1
    assert abs(world.job.status.wasted_gpu_seconds - wasted - 6000 * 2) <= 30


def test_a_large_gangs_pods_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = gang()
    world.settle()
    start(world, 0, 1, 2)

    def compared(_: Pod, __: object) -> bool:
        raise AssertionError("of n pods that takes n x n comparisons of all their fields")

    monkeypatch.setattr(Pod, "__eq__", compared)
    status = trains(world, 0, 1).status
    assert status
    assert (status.ranks.ready, status.ranks.spares) == (2, 1)
