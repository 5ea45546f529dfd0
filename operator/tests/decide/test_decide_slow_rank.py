"""A gang leaves the node of a slow rank where its job asks for that: saved, to a sure spare, and once a day at most."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_api.contract.status import Degradation, pod_of_gang
from oarlock_api.requests import EvictionReadiness
from oarlock_operator.decide import decide
from oarlock_operator.decide.draft import Draft
from oarlock_operator.decide.slow_rank import AGAIN, stays
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import DeletePods, Need

SLOW = f"rank 3, in {pod_of_gang(1)}, is slow. CPU share"


def training(policy: str = "Migrate", *, spares: bool = True, **pod: str) -> World:
    world = World(job=job(spec=spec(recovery={"slowRank": policy}, pod=pod)), spares=spares, may_cordon=True)
    world.running(step=10)
    return world


def slow(world: World, pod: int = 1) -> None:
    """What rank 0 tells from now on."""
    world.step(20)
    assert world.progress is not None
    world.progress = replace(world.progress, degraded={Degradation.SLOW_RANK: SLOW}, slow_pod=pod)


def told(world: World) -> str:
    return next(c.message for c in world.job.status.conditions if c.type == "Degraded")


def test_with_a_spare_the_gang_saves_and_leaves_that_node_and_nobody_cordons_it() -> None:
    world = training()
    slow(world)
    plan = world.one_pass()
    assert not plan.actions, "intent first"
    (event,) = plan.events
    moved = (
        "the gang leaves node node-1: rank 3, in pod flux-1-1 on node-1, is slow. CPU share. The pods save and leave; "
    )
    assert (event.reason, event.message) == ("SlowRank", f"{moved}attempt 2 starts elsewhere.")
    status = world.job.status
    assert (status.attempt, status.reason, status.attempts[-1].reason) == (2, "SlowRank", "SlowRank")
    assert (status.restarts.voluntary, status.restarts.infrastructure, status.last_fault) == (1, 0, None)
    assert [(entry.name, entry.strict) for entry in status.avoided_nodes] == [("node-1", False)]
    assert (status.cordoned_nodes, world.cordoned) == ((), set())
    deleted = [action for action in world.one_pass().actions if isinstance(action, DeletePods)]
    assert [action.grace_seconds for action in deleted] == [None], "their own grace, in which they save"


def test_spares_are_looked_for_without_the_slow_node() -> None:
    world = training(spares=False)
    slow(world)
    need = decide(world.observe())
    assert isinstance(need, Need)
    assert need.leaving == {"node-1"}


def test_without_a_spare_it_trains_on_and_says_what_it_waits_for() -> None:
    world = training(spares=False)
    slow(world)
    world.settle()
    assert world.job.status.attempt == 1
    assert condition(world, "Degraded") == ("True", "SlowRank")
    assert told(world) == (
        "rank 3, in pod flux-1-1 on node-1, is slow. CPU share. The gang moves once as many free nodes would take it"
    )


def test_by_default_it_is_only_told() -> None:
    world = training("Report")
    slow(world)
    world.settle()
    assert (world.job.status.attempt, told(world)) == (1, "rank 3, in pod flux-1-1 on node-1, is slow. CPU share")


def test_a_second_slow_rank_on_a_fresh_node_within_a_day_is_only_told() -> None:
    world = training()
    slow(world)
    world.settle()
    world.kubelets()
    world.running(step=30)
    assert world.job.status.attempt == 2
    slow(world, pod=0)
    world.settle()
    assert world.job.status.attempt == 2
    assert told(world).endswith("The gang stays: it has moved for a slow rank less than a day ago")
    world.now += AGAIN
    slow(world, pod=0)
    world.settle()
    assert world.job.status.attempt == 3


def test_attempts_that_come_after_the_move_do_not_have_it_forgotten() -> None:
    world = training()
    slow(world)
    world.settle()
    draft = Draft(world.job.status)
    for number in range(3, 16):
        draft.record(number, reason="Evicted", start_time=world.now)
    assert [one.number for one in draft.status.attempts] == [2, *range(7, 16)]
    assert "less than a day ago" in stays(world.observe(), draft)
    draft.record(16, reason="SlowRank", start_time=world.now)
    assert [one.number for one in draft.status.attempts] == list(range(7, 17)), "the last move alone"


def test_while_a_save_takes_longer_than_the_grace_no_step_is_lost_for_ten_percent() -> None:
    world = training()
    readiness = EvictionReadiness(seconds_needed=99.0, grace_seconds=60, measure_time=world.now, attempt=1, by="Drill")
    world.job = replace(world.job, status=world.job.status.model_copy(update={"eviction_readiness": readiness}))
    slow(world)
    world.settle()
    assert world.job.status.attempt == 1
    assert "The gang stays: a save takes longer than its pods' grace" in told(world)


@pytest.mark.parametrize("pod", [7, None])
def test_a_pod_that_nobody_knows_moves_nothing(pod: int | None) -> None:
    world = training()
    slow(world, pod=pod)  # type: ignore[arg-type]
    world.settle()
    assert world.job.status.attempt == 1


def test_a_gang_that_somebody_else_wants_to_move_moves_for_him() -> None:
    world = training()
    world.nodes = {"node-0": Node(name="node-0", maintenance=Maintenance("cordoned", enforced=True))}
    slow(world)
    world.one_pass()
    assert world.job.status.reason == "NodeMarked"


def test_a_slow_rank_of_a_gang_that_is_ending_is_nobodys_business() -> None:
    world = training()
    slow(world)
    world.end(1, 1)
    world.one_pass()
    assert world.job.status.reason != "SlowRank"
    assert world.now - world.job.status.attempts[-1].start_time < timedelta(seconds=60)  # type: ignore[operator]
