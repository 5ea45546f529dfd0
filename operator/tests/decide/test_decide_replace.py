"""A lost pod is made anew by itself while the others stand by: what is written down, deleted and made, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import spec
from made_pods import environment
from replacing import NODES, cut_off, gang, go_on, kill, living, states, warnings

from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import CreatePods, DeletePods


def test_a_lost_pod_alone_is_made_anew_in_one_pass_and_the_others_are_let_be() -> None:
    world = gang()
    kill(world, 2)
    plan = world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])
    assert living(world) == ["flux-1-0", "flux-1-1", "flux-1-2-i2", "flux-1-3"]
    assert [type(action) for action in plan.actions] == [DeletePods, CreatePods]
    assert "flux-1-2" not in world.pods, "what it had to say was heard"
    (event,) = warnings(plan)
    assert "Attempt 1 goes on with its pod made anew; 3 of 4 stand by." in event.message
    (entry,) = world.job.status.recovery.replacing
    assert (entry.node_name, entry.reason, entry.time) == ("node-2", "ProcessKilled", world.now)
    assert world.job.status.attempts[0].replaced_node_names == ("node-2",)
    assert world.job.status.phase == "Recovering"
    fault = world.job.status.last_fault
    assert fault is not None
    assert (fault.rank, fault.action) == (2, "the pod was made anew")


def planned_for_one_loss(nodes: int) -> list[tuple[str, int]]:
    """Each action until the gang trains again, and how many pods it is for."""
    world = gang(nodes=nodes)
    kill(world, 2)
    plans = [world.one_pass(), world.one_pass()]
    plans += [go_on(world, 2), world.one_pass()]
    assert states(world) == (1, None, [])
    return [
        (type(act).__name__, len(act.manifests if isinstance(act, CreatePods) else getattr(act, "pods", ())))
        for plan in plans
        for act in plan.actions
    ]


def test_a_lost_pod_costs_as_many_requests_in_a_gang_of_a_thousand_as_in_one_of_four() -> None:
    assert planned_for_one_loss(4) == planned_for_one_loss(1000) == [("DeletePods", 1), ("CreatePods", 1)]


def test_each_pod_of_such_a_gang_says_so_and_the_new_one_that_nothing_of_the_old_one_runs() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    told = {name: environment(world.made[name]) for name in ("flux-1-1", "flux-1-2-i2")}
    assert {env["OARLOCK_REPLACES_PODS"] for env in told.values()} == {"1"}
    assert "OARLOCK_INCARNATION" not in told["flux-1-1"]
    new = told["flux-1-2-i2"]
    assert (new["OARLOCK_INCARNATION"], new["OARLOCK_FOLLOWS_THE_DEAD"]) == ("2", "1")


def test_it_is_written_down_whether_the_end_of_the_lost_pod_was_seen() -> None:
    killed, cut_off_node = gang(), gang()
    kill(killed, 2)
    cut_off(cut_off_node, 2, unreachable=True)
    for world in (killed, cut_off_node):
        world.one_pass()
    told = [world.job.status.recovery.replacing[0].ended for world in (killed, cut_off_node)]
    assert told == [True, None]


def test_of_a_pod_that_may_have_been_made_and_gone_unseen_no_end_was_seen() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    del world.pods["flux-1-2-i2"]
    world.one_pass()
    (entry,) = world.job.status.recovery.replacing
    assert (entry.incarnation, entry.ended) == (3, None)


def test_the_leader_is_told_how_long_rounds_wait_and_a_change_of_that_keeps_no_pod_from_being_made_anew() -> None:
    usual, world = gang(), gang(backoffSeconds=20, maxBackoffSeconds=600)
    assert "OARLOCK_BACKOFF" not in environment(usual.made["flux-1-0"])
    told = [environment(world.made[f"flux-1-{rank}"]).get("OARLOCK_BACKOFF") for rank in (0, 1)]
    assert told == ["20 600", None]
    world.job = replace(world.job, spec=spec(nodes=NODES, recovery={"inPlace": "Auto", "backoffSeconds": 30}))
    kill(world, 2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])


def test_the_stage_ends_with_a_step_of_a_later_round_which_is_booked_and_not_charged_again() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    counts = world.job.status.restarts
    assert (counts.application, counts.without_progress) == (1, 1)
    world.start_all()
    world.step(20)
    world.one_pass()
    assert states(world)[1] == "Replace", "that step was made before"
    plan = go_on(world, 2)
    status = world.job.status
    assert states(world) == (1, None, [])
    assert (status.phase, status.reason, status.round) == ("Running", "Training", 2)
    (one,) = status.rounds
    assert (one.rung, one.round, one.rank, one.reason) == ("ReplacePod", 1, 2, "ProcessKilled")
    assert one.message is not None
    assert one.message.startswith("pod flux-1-2 "), "not its successor, nor the leader's word for it"
    assert one.exit_code is None
    assert (one.resumed_from_step, one.lost_steps) == (15, 5)
    assert status.last_fault is not None
    assert one.ended_time == status.last_fault.time, "so the attempt is not taken for one that ended by it"
    assert status.restarts == counts
    assert status.restart_count == 0, "that counts attempts"
    assert [event.reason for event in plan.events] == ["TrainingAgain"]
    assert "flux-1-2-i2 on node-2" in plan.events[0].message


def test_a_pod_on_a_lost_node_is_followed_at_once_by_one_that_is_not_told_that_it_is_dead() -> None:
    world = gang()
    node = cut_off(world, 1, unreachable=True)
    world.one_pass()
    assert "OARLOCK_FOLLOWS_THE_DEAD" not in environment(world.made["flux-1-1-i2"])
    assert world.pods["flux-1-1"].deleting
    assert [(one.name, one.strict) for one in world.job.status.avoided_nodes] == [(node, False)]
    assert (world.job.status.restarts.infrastructure, world.job.status.restarts.without_progress) == (1, 0)


def test_while_the_old_pod_may_be_stopped_by_its_kubelet_no_new_one_is_made() -> None:
    world = gang()
    node = cut_off(world, 1, unreachable=False)
    world.settle()
    assert states(world) == (1, "Replace", [(1, 2)])
    assert "flux-1-1-i2" not in world.pods
    world.nodes[node] = replace(world.nodes[node], unreachable=True)
    world.settle()
    assert "flux-1-1-i2" in world.pods


def test_a_broken_gpu_s_node_is_avoided_by_the_new_pod_alone() -> None:
    world = gang()
    world.end(3, 80, xid=79)
    world.one_pass()
    assert states(world) == (1, "Replace", [(3, 2)])
    assert [(one.name, one.strict) for one in world.job.status.avoided_nodes] == [("node-3", True)]
    assert world.pod(3).keeps_off == {"node-3"}


def test_a_node_that_was_given_back_takes_the_next_new_pod() -> None:
    world = gang()
    world.end(3, 80, xid=79)
    world.one_pass()
    go_on(world, 3)
    world.settle()
    assert states(world) == (1, None, [])
    world.now += timedelta(minutes=1)
    world.nodes["node-3"] = Node(name="node-3", ready=True, boot_id="1", given_back=world.now)
    kill(world, 1)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 3)])
    assert world.pod(1).keeps_off == set()
    assert world.job.status.avoided_nodes == ()


@pytest.mark.parametrize("rank", [0, 3])
def test_a_new_pod_that_waits_beside_a_node_that_was_given_back_is_made_anew_for_it(rank: int) -> None:
    world, node = gang(), f"node-{rank}"
    world.end(rank, 80, xid=79)
    world.one_pass()
    world.settle()
    waiting, since = world.pod(rank), world.job.status.recovery.replacing[0].time
    world.pods[waiting.name] = replace(
        waiting, scheduled=False, node="", started=False, obstacle="0/4 nodes are available"
    )
    world.now += timedelta(seconds=20)
    for _ in range(2):
        world.one_pass()
        assert states(world) == (1, "Replace", [(rank, 2)]), "its node is avoided as it was"
    world.nodes[node] = Node(name=node, ready=True, boot_id="1", given_back=world.now)
    world.settle()
    again = world.pod(rank)
    assert (again.incarnation > 2, again.keeps_off) == (True, set())
    assert states(world) == (1, "Replace", [(rank, again.incarnation)])
    assert living(world) == sorted(again.name if one == rank else f"flux-1-{one}" for one in range(4))
    assert world.job.status.recovery.replacing[0].time == since
    assert world.job.status.restarts.infrastructure == 1, "it costs no budget"


def test_two_that_are_lost_at_once_are_charged_once_and_numbered_by_one_counter() -> None:
    world = gang()
    kill(world, 1)
    kill(world, 2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2), (2, 3)])
    assert world.job.status.restarts.application == 1


def test_another_loss_meanwhile_is_taken_in_and_is_no_start_without_progress() -> None:
    world = gang()
    kill(world, 1)
    world.one_pass()
    cut_off(world, 3, unreachable=True)
    world.settle()
    assert states(world) == (1, "Replace", [(1, 2), (3, 3)])
    counts = world.job.status.restarts
    assert (counts.application, counts.infrastructure, counts.without_progress) == (1, 1, 1)
    go_on(world, 1)
    assert states(world) == (1, None, [])


def test_a_new_pod_that_may_have_been_made_and_gone_unseen_is_followed_by_a_greater_number() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    del world.pods["flux-1-2-i2"]
    world.pods.pop("flux-1-2", None)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 3)])
    assert living(world) == ["flux-1-0", "flux-1-1", "flux-1-2-i3", "flux-1-3"]
    assert world.job.status.attempts[-1].incarnation == 3
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 3)])


def test_numbers_do_not_grow_while_the_api_server_takes_no_pods() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    del world.pods["flux-1-2-i2"]
    world.hindrance = "exceeded quota"
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])


def test_a_new_pod_that_is_lost_itself_is_followed_by_a_greater_number() -> None:
    world = gang()
    kill(world, 1)
    world.one_pass()
    world.start_all()
    del world.pods["flux-1-1-i2"]
    world.pods["gone"] = replace(world.pod(0), name="flux-1-1-i2", uid="x", rank=1, incarnation=2, gone=True)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 3)])
    assert "flux-1-1-i3" in world.pods
