"""A gang leaves nodes that somebody else wants emptied: with a spare in sight, saved, and at no budget's cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World, condition

from oarlock_api.contract.figures import Figures
from oarlock_operator.decide import decide
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import DeletePods, Need, Plan

CORDONED = Maintenance("cordoned", enforced=True)
LABELLED = Maintenance("label autopilot.ibm.com/gpuhealth=EVICT", enforced=False)


def marked(*marks: Maintenance, spares: bool) -> World:
    """A gang that trains, each of whose first nodes has a mark."""
    world = World(spares=spares)
    world.running(step=20)
    world.nodes = {f"node-{rank}": Node(name=f"node-{rank}", maintenance=each) for rank, each in enumerate(marks)}
    return world


def test_with_a_spare_the_gang_saves_and_moves_at_no_budgets_cost() -> None:
    world = marked(CORDONED, spares=True)
    plan = world.one_pass()
    assert not plan.actions, "intent first"
    status = world.job.status
    assert (status.attempt, status.reason, status.phase) == (2, "NodeMarked", "Recovering")
    assert (status.restarts.voluntary, status.restarts.application, status.restarts.infrastructure) == (1, 0, 0)
    assert status.last_fault is None
    deleted = [action for action in world.one_pass().actions if isinstance(action, DeletePods)]
    assert [action.grace_seconds for action in deleted] == [None], "their own grace, in which they save"
    world.kubelets()
    world.settle()
    assert sorted(world.pods) == ["flux-2-0", "flux-2-1"]


def test_ranks_that_start_anew_in_their_pods_have_nothing_to_save_so_their_next_step_is_waited_for() -> None:
    world = marked(CORDONED, spares=True)
    world.step(20)
    assert world.progress is not None
    trains = world.progress
    world.progress = replace(trains, figures=Figures())
    world.one_pass()
    assert world.job.status.attempt == 1
    world.progress = trains
    world.one_pass()
    assert world.job.status.reason == "NodeMarked"


@pytest.mark.parametrize(("mark", "strict"), [(CORDONED, False), (LABELLED, True)])
def test_a_mark_that_no_scheduler_knows_of_is_avoided_strictly(mark: Maintenance, strict: bool) -> None:  # noqa: FBT001
    world = marked(mark, spares=True)
    world.one_pass()
    assert [(entry.name, entry.strict) for entry in world.job.status.avoided_nodes] == [("node-0", strict)]


def test_without_spares_the_gang_trains_on_and_says_so() -> None:
    world = marked(CORDONED, LABELLED, spares=False)
    world.settle()
    assert world.job.status.attempt == 1
    assert condition(world, "Degraded") == ("True", "NodeMarked")
    assert condition(world, "Running")[0] == "True"


def test_spares_are_counted_only_where_a_mark_is_in_question() -> None:
    assert isinstance(decide(marked(CORDONED, LABELLED, spares=False).observe()), Need)
    assert isinstance(decide(marked(spares=False).observe()), Plan)
    starting = marked(CORDONED, spares=True)
    starting.end(1, 1)
    starting.one_pass()
    assert isinstance(decide(starting.observe()), Plan), "a gang that recovers anyway keeps off marked nodes by itself"


def test_a_mark_on_a_node_that_the_gang_has_left_is_nobodys_business() -> None:
    world = marked(CORDONED, spares=True)
    world.pods = {name: replace(pod, node=pod.node.replace("node", "other")) for name, pod in world.pods.items()}
    world.settle()
    assert world.job.status.attempt == 1
    assert condition(world, "Degraded") == ("False", "AsExpected")
