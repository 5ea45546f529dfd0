"""Lost pods of gangs that a gang system places: which systems take a single pod back, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gang_worlds import COSCHEDULING, KAI, KUEUE, NATIVE, VOLCANO, gate
from jobs import job, spec
from replacing import KEYED, cut_off, kill
from worlds import World

from oarlock_operator.model.observation import GangSystems


def gang(systems: GangSystems) -> World:
    """A gang of four of that system, which trains; lost pods are made anew one by one where it takes them back."""
    (system,) = systems.apis
    needs = {"Kueue": {"queue": "team"}, "KAI": {"queue": "team"}, "Coscheduling": {"schedulerName": "together"}}
    scheduling = {"gang": system.value, **needs.get(system.value, {})}
    wanted = spec(nodes=4, recovery={"inPlace": "Auto"}, scheduling=scheduling)
    world = World(job=job(spec=wanted), systems=systems, defaults=KEYED)
    world.running(step=20)
    return world


def new_pods(world: World) -> list[str]:
    return sorted(name for name in world.made if "-i" in name)


@pytest.mark.parametrize("systems", [KUEUE, VOLCANO, COSCHEDULING], ids=lambda systems: next(iter(systems.apis)).value)
def test_where_a_system_takes_one_pod_back_the_new_one_is_of_the_same_group(systems: GangSystems) -> None:
    world = gang(systems)
    groups = dict(world.groups)
    kill(world)
    world.settle()
    assert (world.job.status.attempt, new_pods(world)) == (1, ["flux-1-2-i2"])
    assert world.groups == groups
    before, after = (world.made[name]["metadata"] for name in ("flux-1-2", "flux-1-2-i2"))
    for kind in ("labels", "annotations"):
        foreign = {key: value for key, value in before[kind].items() if "oarlock.dev/" not in key}
        assert foreign.items() <= after[kind].items()


@pytest.mark.parametrize("systems", [KAI, NATIVE], ids=lambda systems: next(iter(systems.apis)).value)
def test_where_it_is_not_known_that_a_system_does_a_lost_pod_is_a_new_attempt(systems: GangSystems) -> None:
    world = gang(systems)
    kill(world)
    world.one_pass()
    assert world.job.status.attempt == 2


# Kueue counts a pod until it has failed, and deletes whatever is made beside it.


def test_under_kueue_the_next_pod_waits_until_the_one_before_it_has_failed() -> None:
    world = gang(KUEUE)
    kill(world)
    ended = world.pod(2)
    world.pods[ended.name] = replace(ended, failed=False)
    world.one_pass()
    assert world.job.status.recovery.stage == "Replace"
    assert new_pods(world) == [], "its container has ended, and its phase does not know yet"
    # Kueue keeps a deleted one in the list until another takes its place.
    world.pods[ended.name] = replace(ended, deleting=True, delete_by=world.now)
    world.settle()
    assert new_pods(world) == ["flux-1-2-i2"]


def test_under_kueue_a_pod_that_nobody_hears_of_is_a_new_attempt_and_under_volcano_it_is_followed_at_once() -> None:
    attempts, told = {}, {}
    for systems in (KUEUE, VOLCANO):
        world = gang(systems)
        cut_off(world)
        plan, name = world.one_pass(), next(iter(systems.apis)).value
        attempts[name] = world.job.status.attempt
        told[name] = [event.message for event in plan.events]
    assert attempts == {"Kueue": 2, "Volcano": 1}
    assert any("Kueue counts a pod until it has failed" in message for message in told["Kueue"])


def test_under_kueue_a_pod_whose_node_is_lost_while_it_ends_is_not_waited_for_to_the_end() -> None:
    world = gang(KUEUE)
    kill(world)
    ended = replace(world.pod(2), failed=False)
    world.pods[ended.name] = ended
    world.one_pass()
    world.now += timedelta(seconds=45)
    world.pods[ended.name] = replace(ended, deleting=True, delete_by=world.now - timedelta(seconds=31))
    cut_off(world)
    world.one_pass()
    assert (world.job.status.attempt, new_pods(world)) == (2, [])


def test_where_kueue_s_topology_ties_a_rank_to_its_node_its_lost_pod_is_a_new_attempt() -> None:
    world = gang(KUEUE)
    kill(world)
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], pinned=True)
    plan = world.one_pass()
    assert world.job.status.attempt == 2
    assert any("Kueue ties each pod to its node" in event.message for event in plan.events)


def test_a_new_pod_that_kueue_still_holds_back_lacks_no_node_and_puts_the_job_into_no_queue() -> None:
    world = gang(KUEUE)
    kill(world)
    world.settle()
    gate(world, gated=True)
    world.now += timedelta(seconds=120)
    plan = world.one_pass()
    status = world.job.status
    assert (status.phase, status.recovery.stage, status.reason) == ("Recovering", "Replace", "ProcessKilled")
    assert plan.events == ()


@pytest.mark.parametrize("systems", [KUEUE, VOLCANO], ids=lambda systems: next(iter(systems.apis)).value)
def test_a_preemption_while_a_pod_is_replaced_is_a_new_attempt_that_costs_nothing(systems: GangSystems) -> None:
    world = gang(systems)
    kill(world)
    world.settle()
    counts = world.job.status.restarts
    for name, pod in world.pods.items():
        world.pods[name] = replace(
            pod, disrupted="Preempted", deleting=True, delete_by=world.now + timedelta(seconds=30)
        )
    world.one_pass()
    assert world.job.status.attempt == 2
    after = world.job.status.restarts
    assert (after.application, after.infrastructure) == (counts.application, counts.infrastructure)
