"""A round goes on without the pod that is made anew: with a spare, or with fewer nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import spec
from members import NO_ROOM, book, charges, degraded, gang, start, tells
from replacing import cut_off, states

from oarlock_api.contract.rounds import LostPod
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import CreatePods


def test_with_a_spare_in_the_lost_pod_s_place_the_gang_trains_and_the_new_pod_is_waited_for_without_bound() -> None:
    world = gang(spares=1, standbySeconds=30)
    cut_off(world, 1)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2)])
    world.pods["flux-1-1-i2"] = replace(world.pod(1), obstacle=NO_ROOM)
    tells(world, 0, 2, round_=2, step=None, lost=(1,))
    world.now += timedelta(seconds=600)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2)]), "the round has begun, and may load for as long as it likes"
    tells(world, 0, 2, round_=2, lost=(1,))
    plan = world.one_pass()
    assert states(world) == (1, None, [(1, 2)])
    assert (world.job.status.phase, charges(world)) == ("Running", (0, 1, 0))
    assert [event.reason for event in plan.events] == ["TrainingAgain"]
    world.now += timedelta(hours=5)
    tells(world, 0, 2, round_=2, step=17, lost=(1,))
    world.settle()
    assert states(world) == (1, None, [(1, 2)])
    start(world, 1)
    tells(world, 0, 2, round_=2, step=18, lost=(1,))
    world.settle()
    assert states(world) == (1, None, [(1, 2)]), "the leader has not heard it yet"
    tells(world, 0, 2, round_=2, step=19)
    world.settle()
    assert states(world) == (1, None, [])
    assert charges(world) == (0, 1, 0)


def test_fewer_nodes_train_on_while_the_lost_one_s_pod_finds_none_and_are_joined_by_it_later() -> None:
    world = gang(nodes=3, least=1)
    cut_off(world, 2)
    world.one_pass()
    world.pods["flux-1-2-i2"] = replace(world.pod(2), obstacle=NO_ROOM)
    tells(world, 0, 1, round_=2, lost=(2,))
    plan = world.one_pass()
    assert states(world) == (1, None, [(2, 2)])
    assert "on 2 of 3 nodes" in plan.events[-1].message
    assert world.job.status.attempts[-1].node_names == (world.pod(0).node, world.pod(1).node)
    start(world, 2)
    tells(world, 0, 1, round_=2, step=30)
    world.settle()
    assert states(world) == (1, None, [])
    tells(world, round_=3, step=31)
    world.settle()
    assert (states(world), world.job.status.standby) == ((1, None, []), ())
    assert "node-22" in world.job.status.attempts[-1].node_names


def test_a_new_pod_that_must_still_be_made_is_made_after_the_stage_has_ended() -> None:
    world = gang(spares=1)
    node = world.pod(1).node
    world.nodes[node] = Node(name=node, ready=False, boot_id="1")
    world.one_pass()
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    assert states(world) == (1, None, [(1, 2)])
    assert "flux-1-1-i2" not in world.pods, "its kubelet may still stop the old one"
    world.nodes[node] = replace(world.nodes[node], unreachable=True)
    plan = world.one_pass()
    assert [action.optional for action in plan.actions if isinstance(action, CreatePods)] == [True]
    assert "flux-1-1-i2" in world.pods


def test_the_end_of_a_new_pod_that_nobody_waits_for_gets_another_one_and_costs_nothing() -> None:
    world = gang(spares=1)
    cut_off(world, 1)
    world.one_pass()
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    start(world, 1)
    world.end(1, 87)
    tells(world, 0, 2, round_=2, step=17, lost=(1,))
    world.settle()
    assert states(world) == (1, None, [(1, 3)])
    assert charges(world) == (0, 1, 0)


def test_a_further_loss_while_a_pod_is_awaited_has_a_stage_and_a_charge_of_its_own() -> None:
    world = gang(spares=1)
    cut_off(world, 1)
    world.one_pass()
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    cut_off(world, 2)
    world.progress = None
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2), (2, 3)])
    assert charges(world) == (0, 2, 0)
    tells(world, 0, 2, round_=2, step=40, lost=(1, 2))
    world.settle()
    assert states(world)[1] == "Replace", "that is the round in which it was lost"
    start(world, 1)
    tells(world, round_=3, step=41, lost=(2,))
    world.settle()
    assert states(world) == (1, None, [(2, 3)])


def test_all_that_trained_lost_at_once_is_a_new_attempt_though_a_spare_is_left() -> None:
    world = gang(spares=1)
    for rank in (0, 1):
        world.end(rank, 137, with_report=False)
    world.one_pass()
    assert states(world)[0] == 2


def test_a_suspension_while_a_pod_is_awaited_leaves_nothing_to_be_made() -> None:
    world = gang(spares=1)
    cut_off(world, 1)
    world.one_pass()
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "suspend": True}))
    world.nodes.clear()
    for _ in range(3):
        world.settle()
        world.kubelets()
    world.settle()
    assert (world.job.status.phase, states(world)[2]) == ("Suspended", [])
    assert all(pod.stopped for pod in world.pods.values())


def test_a_pod_that_the_round_does_not_need_is_not_made_from_something_else_than_the_others_were() -> None:
    world = gang(nodes=3, least=1)
    node = world.pod(2).node
    world.nodes[node] = Node(name=node, ready=False, boot_id="1")
    world.one_pass()
    book(world, rank=2, nodes=2)
    tells(world, 0, 1, round_=2, lost=(2,))
    world.settle()
    assert (states(world), world.pod(2).name) == ((1, None, [(2, 2)]), "flux-1-2"), "it may still be stopped"
    before = world.job
    raw = before.spec.to_manifest() if before.spec else {}
    other = {**raw, "recovery": {**raw["recovery"], "hangSeconds": 99}}
    world.job = replace(before, spec=spec(**other))
    cut_off(world, 2)
    for step in range(30, 34):
        world.now += timedelta(seconds=90)
        tells(world, 0, 1, round_=2, step=step, lost=(2,))
        world.settle()
    assert (states(world), sorted(world.pods)) == ((1, None, [(2, 2)]), ["flux-1-0", "flux-1-1"])
    assert "would be made from something else than the others" in degraded(world)[1]
    world.job = replace(world.job, spec=before.spec)
    world.now += timedelta(seconds=90)
    tells(world, 0, 1, round_=2, step=40, lost=(2,))
    world.settle()
    assert world.pod(2).name == "flux-1-2-i3"


@pytest.mark.parametrize("waits", ["a spare", "a pod of a gang that shrank"])
def test_a_leader_that_is_cut_off_is_known_for_it_beside_a_pod_that_waits_for_a_node(waits: str) -> None:
    world = gang(nodes=4, spares=1) if waits == "a spare" else gang(nodes=5, least=4)
    tells(world, *(() if waits == "a spare" else (0, 1, 2, 3)), round_=1, step=20)
    world.pods["flux-1-4"] = replace(world.pod(4), node="", scheduled=False, started=False, obstacle=NO_ROOM)
    world.settle()
    assert world.job.status.standby == (4,)
    world.now += timedelta(seconds=60)
    world.step(21)
    assert world.progress is not None
    since = (world.now - timedelta(seconds=5)).isoformat()
    lost = tuple(LostPod(rank=rank, incarnation=1, code=82, why="silent", lost_at=since) for rank in (1, 2, 3))
    members = () if waits == "a spare" else (0, 1, 2, 3)
    world.progress = replace(world.progress, members=members, lost=lost, heartbeat_at=world.now.isoformat())
    world.answering = frozenset(world.pod(rank).uid for rank in (1, 2, 3))
    world.one_pass()
    status = world.job.status
    assert (status.attempt, status.reason) == (2, "PeerLost")
    assert [(one.name, one.strict) for one in status.avoided_nodes] == [("node-0", False)]
    assert status.attempts[0].not_in_place == "rank 0's agent hears none of the others"
