"""Pods that rank 0's agent has lost, and that say nothing themselves: when they are made anew, and who is believed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from made_pods import environment
from replacing import NODES, cut_off, gang, go_on, missed, states
from worlds import World

from oarlock_operator.decide import decide
from oarlock_operator.model.observed_nodes import Pool
from oarlock_operator.model.plan import Look, Need


def test_a_pod_that_only_the_leader_misses_is_replaced_once_it_had_time_to_speak() -> None:
    world = gang()
    missed(world, 3, ago=1.5)
    world.one_pass()
    assert states(world) == (1, None, [])
    missed(world, 3, ago=2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(3, 2)])
    assert world.job.status.reason == "AgentSilent"
    assert world.pods["flux-1-3"].deleting
    assert "flux-1-3-i2" not in world.pods, "it still runs"
    world.kubelets()
    world.one_pass()
    assert "flux-1-3-i3" in world.pods, "nothing tells that the number before it was given to no pod"
    world.settle()
    assert states(world) == (1, "Replace", [(3, 3)]), "the word was about the one before"


def test_those_that_are_lost_one_after_the_other_within_seconds_are_one_fault() -> None:
    world = gang()
    missed(world, 1, 3, ago=2.5)
    assert world.progress is not None
    first, second = world.progress.lost
    later = replace(second, lost_at=(world.now - timedelta(seconds=0.5)).isoformat())
    world.progress = replace(world.progress, lost=(first, later))
    world.one_pass()
    assert states(world) == (1, None, [])
    missed(world, 1, 3, ago=2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2), (3, 3)])
    assert world.job.status.restarts.infrastructure == 1


def test_one_that_was_lost_for_long_is_not_kept_waiting_by_another_loss() -> None:
    world = gang()
    missed(world, 1, 3, ago=5)
    assert world.progress is not None
    first, second = world.progress.lost
    world.progress = replace(world.progress, lost=(first, replace(second, lost_at=world.now.isoformat())))
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2)])


def test_where_another_node_has_room_the_next_one_does_not_wait_for_a_silent_one_to_stop() -> None:
    world = gang()
    world.spares = True
    missed(world, 3, ago=5)
    world.one_pass()
    assert world.pods["flux-1-3"].deleting
    assert not world.pods["flux-1-3"].stopped
    assert "OARLOCK_FOLLOWS_THE_DEAD" not in environment(world.made["flux-1-3-i2"]), "its leader waits for the lease"
    world.settle()
    assert states(world) == (1, "Replace", [(3, 2)])


def test_that_room_is_off_the_node_of_the_silent_one() -> None:
    world = gang()
    missed(world, 3, ago=5)
    need = decide(world.observe())
    assert isinstance(need, Need)
    assert (need.look, need.leaving) == (Look.SPARES, {"node-3"})


def test_rank_0_s_next_pod_waits_until_the_one_before_cannot_be_found_by_its_name() -> None:
    world = gang()
    world.spares = True
    cut_off(world, 0, unreachable=False)
    world.settle()
    assert states(world) == (1, "Replace", [(0, 2)])
    assert "flux-1-0-i2" not in world.pods


def cut_rank_0_off(world: World, *answering: int) -> None:
    """Rank 0's agent has lost all the others, of which these answer the operator."""
    missed(world, *range(1, NODES), ago=5)
    world.answering = frozenset(world.pod(rank).uid for rank in answering)
    world.one_pass()


def avoided(world: World) -> list[tuple[str, bool]]:
    return [(one.name, one.strict) for one in world.job.status.avoided_nodes]


def test_a_leader_that_hears_none_of_those_that_live_is_the_one_that_is_cut_off() -> None:
    world = gang()
    cut_rank_0_off(world, 1, 2, 3)
    status = world.job.status
    assert (status.attempt, avoided(world)) == (2, [("node-0", False)])
    assert (status.restarts.infrastructure, status.reason) == (1, "PeerLost")
    assert "do not reach one another" in (status.message or "")
    assert status.attempts[0].not_in_place == "rank 0's agent hears none of the others"
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.attempt, avoided(world)) == (2, [("node-0", False)])


@pytest.mark.parametrize("answering", [(), (1, 2)])
def test_where_some_of_the_others_do_not_answer_the_leader_is_believed(answering: tuple[int, ...]) -> None:
    world = gang()
    cut_rank_0_off(world, *answering)
    assert states(world) == (1, "Replace", [(1, 2), (2, 3), (3, 4)])
    assert avoided(world) == [("node-1", False), ("node-2", False), ("node-3", False)]


def test_of_two_that_do_not_reach_each_other_the_leader_is_believed() -> None:
    world = gang(nodes=2)
    missed(world, 1, ago=5)
    world.answering = frozenset({world.pod(1).uid})
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2)])


def test_a_pod_that_was_lost_before_is_given_as_much_time_as_the_first_time() -> None:
    world = gang()
    world.end_round(82, rank=3, lost_pod=True, resumed_step=15)
    world.now += timedelta(seconds=600)
    missed(world, 3)
    world.one_pass()
    assert states(world)[1] is None


def test_a_pod_that_said_goodbye_has_half_a_minute_to_end_by_itself() -> None:
    world = gang()
    missed(world, 3, code=80, ago=29)
    world.one_pass()
    assert states(world) == (1, None, [])
    missed(world, 3, code=80, ago=30)
    world.one_pass()
    assert states(world) == (1, "Replace", [(3, 2)])


def test_no_node_is_shut_out_by_the_leader_s_word_alone_however_often_it_is_given() -> None:
    world = gang()
    missed(world, 3, ago=5)
    world.one_pass()
    world.kubelets()
    world.one_pass()
    go_on(world, 3)
    entry = world.job.status.avoided_nodes[0].model_copy(update={"reason": "AgentSilent in attempt 0"})
    world.job = replace(world.job, status=world.job.status.model_copy(update={"avoided_nodes": (entry,)}))
    missed(world, 3, ago=5)
    assert world.progress is not None
    world.progress = replace(
        world.progress, lost=(replace(world.progress.lost[0], incarnation=world.pod(3).incarnation),)
    )
    world.one_pass()
    assert states(world)[1] == "Replace"
    assert [(one.reason, one.strict) for one in world.job.status.avoided_nodes] == [("AgentSilent in attempt 1", False)]


def test_a_leader_that_tells_no_time_is_believed_at_once() -> None:
    world = gang()
    missed(world, 3)
    assert world.progress is not None
    world.progress = replace(world.progress, lost=tuple(replace(one, lost_at="") for one in world.progress.lost))
    world.one_pass()
    assert states(world) == (1, "Replace", [(3, 2)])


def test_what_a_silent_pod_says_at_its_end_still_speaks_against_its_node_once() -> None:
    world = gang()
    world.may_cordon = True
    world.pool = Pool(size=20, schedulable=20)
    missed(world, 3, ago=5)
    world.one_pass()
    assert [(one.name, one.strict) for one in world.job.status.avoided_nodes] == [("node-3", False)]
    counts = world.job.status.restarts
    world.end(3, 80, xid=79)
    plan = world.one_pass()
    status = world.job.status
    assert [(one.name, one.strict) for one in status.avoided_nodes] == [("node-3", True)]
    assert [one.name for one in status.cordoned_nodes] == ["node-3"]
    assert status.last_fault is not None
    assert (status.last_fault.xid, status.last_fault.action) == (79, "the pod was made anew")
    assert [one.reason for one in status.recovery.replacing] == ["GPUFault"]
    assert (states(world), status.restarts) == ((1, "Replace", [(3, 2)]), counts)
    assert [event.reason for event in plan.events].count("GPUFault") == 1
    assert world.pod(3).keeps_off == {"node-3"}
    assert not [event for event in world.one_pass().events if event.reason == "GPUFault"]


def test_a_leader_that_misses_more_than_eight_gets_all_pods_anew() -> None:
    world = gang(nodes=12)
    missed(world, *range(1, 10), ago=5)
    assert world.progress is not None
    late = replace(world.progress.lost[-1], lost_at=world.now.isoformat())
    world.progress = replace(world.progress, lost=(*world.progress.lost[:-1], late))
    world.one_pass()
    assert states(world)[0] == 2
