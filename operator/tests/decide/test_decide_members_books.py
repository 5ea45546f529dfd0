"""Rounds of other members in the books: what is charged, to whom, and what people see."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from members import NO_ROOM, book, booked, charges, degraded, gang, start, tells
from replacing import cut_off, states


def test_a_round_that_was_only_unknown_when_the_pod_was_lost_is_no_new_one() -> None:
    world = gang(nodes=3)
    cut_off(world, 1)
    world.one_pass()
    tells(world, round_=4, step=30)
    world.one_pass()
    start(world, 1)
    tells(world, round_=4, step=30)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 2)]), "it began before, though nobody here had heard of it"
    tells(world, round_=5, step=31)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_a_later_loss_under_a_new_rank_0_is_over_with_a_round_after_it() -> None:
    world = gang(nodes=3)
    world.end(0, 137, with_report=False)
    world.one_pass()
    start(world, 0)
    tells(world, round_=6, step=None)
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2)])
    cut_off(world, 2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2), (2, 3)])
    start(world, 2)
    tells(world, round_=6, step=31)
    world.one_pass()
    assert states(world)[1] == "Replace"
    tells(world, round_=7, step=31)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_what_the_rank_0_before_told_last_says_nothing_of_the_next_round() -> None:
    world = gang(nodes=3)
    tells(world, round_=3, step=30)
    told = world.progress
    world.end(0, 137, with_report=False)
    world.one_pass()
    start(world, 0)
    world.progress = told
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2)])


def test_a_new_pod_that_was_made_and_is_gone_while_nobody_looked_is_followed_by_a_greater_number() -> None:
    world = gang(nodes=3)
    world.end(1, 137, with_report=False)
    world.one_pass()
    assert sorted(world.pods) == ["flux-1-0", "flux-1-1-i2", "flux-1-2"]
    del world.pods["flux-1-1-i2"]
    counts = charges(world)
    world.one_pass()
    assert states(world) == (1, "Replace", [(1, 3)])
    assert (sorted(world.pods)[1], charges(world)) == ("flux-1-1-i3", counts)


def test_a_pod_deleted_by_force_whose_gang_saves_and_leaves_is_charged_once() -> None:
    world = gang(nodes=3)
    del world.pods["flux-1-1"]
    world.one_pass()
    assert (states(world), charges(world)) == ((1, "Replace", [(1, 2)]), (0, 1, 0))
    for rank in (0, 2):
        world.end(rank, 86)
    world.one_pass()
    assert (states(world)[0], charges(world)) == (2, (0, 1, 0))


def test_the_books_tell_a_spare_from_a_pod_that_was_waited_for_and_the_loss_is_charged_once() -> None:
    world = gang(spares=1)
    cut_off(world, 1)
    world.one_pass()
    book(world, rank=1, spare=True)
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    assert booked(world) == [(1, "TakeSpare", 1, None)]
    assert (charges(world), world.job.status.round) == ((0, 1, 0), 2)


def test_that_a_spare_takes_the_place_of_a_lost_pod_is_said_before_and_after() -> None:
    world = gang(spares=1)
    cut_off(world, 1)
    plan = world.one_pass()
    (event,) = [event for event in plan.events if event.reason == "PodReplaced"]
    assert " A spare takes its place. Attempt 1 goes on with its pod made anew; 1 of 2 stand by." in event.message
    book(world, rank=1, spare=True)
    tells(world, 0, 2, round_=2, lost=(1,))
    plan = world.one_pass()
    fault = world.job.status.last_fault
    assert fault is not None
    assert fault.action == "started again with a spare in its place; the pod was made anew"
    (event,) = [event for event in plan.events if event.reason == "TrainingAgain"]
    assert "with a spare in a lost pod's place" in event.message


def test_a_spare_that_is_not_ready_or_has_a_place_is_promised_to_nobody() -> None:
    world = gang(spares=1)
    world.pods["flux-1-2"] = replace(world.pod(2), ready=False)
    cut_off(world, 1)
    plan = world.one_pass()
    assert "spare" not in plan.events[-1].message


@pytest.mark.parametrize(("least", "lost", "said"), [(1, 2, True), (2, 2, True), (2, 0, False)])
def test_when_a_gang_goes_on_with_fewer_nodes_is_said_while_it_still_waits(
    least: int, lost: int, *, said: bool
) -> None:
    world = gang(nodes=3, least=least)
    cut_off(world, lost)
    at = world.now + timedelta(seconds=30)
    plan = world.one_pass()
    words = f"From {at:%H:%M:%S} UTC on 2 of 3 nodes train, unless more are there by then."
    assert (words in (world.job.status.message or "")) is said, "a new rank 0 counts from its own start"
    assert (words in plan.events[-1].message) is said


def test_a_gang_that_cannot_be_as_small_as_it_would_be_promises_nothing() -> None:
    world = gang(nodes=4, least=3)
    for rank in (2, 3):
        cut_off(world, rank)
    world.one_pass()
    assert states(world)[1] == "Replace"
    assert "unless" not in (world.job.status.message or "")


def test_a_loss_that_the_leader_told_first_is_charged_by_its_round_and_its_pod_is_made_anew_for_nothing() -> None:
    world = gang(spares=1)
    cut_off(world, 1)
    book(world, rank=1, spare=True)
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    assert states(world) == (1, None, [(1, 2)])
    assert booked(world) == [(1, "TakeSpare", 1, None)]
    assert charges(world) == (0, 1, 0)
    tells(world, 0, 2, round_=2, step=30, lost=(1,))
    world.settle()
    assert charges(world) == (0, 1, 0)


def test_a_flapping_pod_that_is_left_out_is_charged_each_time_however_many_pods_stood_by_in_vain() -> None:
    """A quota refused the spare for long; then the pods 1 and 2 are cut off in turn, and the leader knows it first."""
    world = gang(spares=1, maxInfrastructureRestarts=99)
    tells(world, round_=1, step=20)
    for _ in range(12):
        world.pods = {name: pod for name, pod in world.pods.items() if pod.rank != 2}
        world.now += timedelta(seconds=61)
        world.one_pass()
    assert world.job.status.attempts[-1].incarnation > 10
    world.settle()
    start(world, 2)
    tells(world, round_=1, step=20)
    world.settle()
    for round_ in range(1, 4):
        left, members = (1, (0, 2)) if round_ % 2 else (2, (0, 1))
        book(world, rank=left, spare=True)
        tells(world, *members, round_=round_ + 1, step=20 + round_, lost=(left,))
        world.settle()
        pod = world.pod(left)
        world.pods[pod.name] = replace(pod, gone=True)
        world.settle()
        start(world, left)
        tells(world, *members, round_=round_ + 1, step=20 + round_)
        world.settle()
        assert (states(world), charges(world)) == ((1, None, []), (0, round_, 0))


def test_a_broken_gpu_of_a_pod_that_is_left_out_ends_no_attempt_and_its_node_is_avoided() -> None:
    world = gang(spares=1)
    world.end(1, 80, xid=79)
    world.end_round(80, rank=1, why="XID 79", step=20, resumed_step=15, lost_pod=True, spare=True)
    tells(world, 0, 2, round_=2, lost=(1,))
    world.settle()
    assert states(world) == (1, None, [(1, 2)])
    assert charges(world) == (0, 1, 0)
    assert [(one.name, one.strict) for one in world.job.status.avoided_nodes] == [("node-1", True)]
    assert world.pod(1).keeps_off == {"node-1"}


def test_a_spare_that_is_heard_of_before_the_end_of_the_pod_that_was_asked_to_go_costs_what_an_eviction_does() -> None:
    world = gang(spares=1)
    world.end_round(86, rank=1, why="pod 1 was asked to go", step=20, resumed_step=0, lost_pod=True, spare=True)
    tells(world, 0, 2, round_=2, lost=(1,))
    world.one_pass()
    counts = world.job.status.restarts
    assert booked(world) == [(1, "TakeSpare", 1, None)]
    assert (counts.voluntary, counts.evictions, counts.without_progress) == (1, 1, 0)


def test_losses_that_only_the_leader_tells_of_use_the_budget_up() -> None:
    world = gang(spares=1, maxInfrastructureRestarts=2)
    for number in range(2, 5):
        book(world, rank=1 if number % 2 else 2, spare=True)
        tells(world, *((0, 1) if number % 2 else (0, 2)), round_=number)
        world.job = replace(world.job, status=world.job.status.model_copy(update={"latest_checkpoint": None}))
        world.one_pass()
    assert world.job.status.reason == "InfrastructureRestartsExhausted"


def test_a_gang_that_shrinks_and_grows_is_booked_with_its_sizes_and_growing_is_charged_to_nobody() -> None:
    world = gang(nodes=3, least=1)
    cut_off(world, 2)
    world.one_pass()
    world.pods["flux-1-2-i2"] = replace(world.pod(2), obstacle=NO_ROOM)
    book(world, rank=2, nodes=2)
    tells(world, 0, 1, round_=2, lost=(2,))
    world.settle()
    assert booked(world) == [(1, "Shrink", 2, 2)]
    world.end_round(1, rank=1, step=25, resumed_step=20)
    tells(world, 0, 1, round_=3, step=26, lost=(2,))
    world.settle()
    assert booked(world)[-1] == (2, "RestartRanks", 1, 2)
    counts = world.job.status.restarts
    start(world, 2)
    world.end_round(86, rank=0, why="the gang can train on 3 nodes", step=30, resumed_step=30, nodes=3)
    tells(world, round_=4, step=31)
    plan = world.one_pass()
    assert booked(world)[-1] == (3, "Grow", None, None)
    assert world.job.status.restarts == counts
    assert "MoreNodes" in [event.reason for event in plan.events]
    assert world.job.status.last_fault is not None
    assert world.job.status.last_fault.rank == 1, "growing is no fault"


@pytest.mark.parametrize("nodes", [None, 2, 1, 7])
def test_an_end_that_is_no_growth_is_charged_though_it_was_asked_for(nodes: int | None) -> None:
    world = gang(nodes=2, least=1)
    world.end_round(86, rank=0, why="the gang can train on more nodes", step=30, resumed_step=30, nodes=nodes)
    tells(world, *((0,) if nodes == 1 else ()), round_=2, step=31)
    world.one_pass()
    assert booked(world)[0][1] == "RestartRanks"
    assert charges(world) == (0, 0, 1)


def test_degraded_says_on_how_many_nodes_it_trains_since_when_and_what_the_others_wait_for() -> None:
    world = gang(nodes=3, least=1)
    cut_off(world, 2)
    world.one_pass()
    world.nodes.clear()
    world.pods.pop("flux-1-2")
    world.pods["flux-1-2-i2"] = replace(world.pod(2), obstacle=NO_ROOM)
    book(world, rank=2, nodes=2, down_seconds=42.0)
    lost_at = world.job.status.last_fault
    assert lost_at is not None
    assert isinstance(lost_at.time, datetime)
    tells(world, 0, 1, round_=2, lost=(2,))
    world.settle()
    since = f"{lost_at.time + timedelta(seconds=42):%Y-%m-%d %H:%M:%S} UTC"
    assert degraded(world) == (
        "FewerNodes",
        f"trains on 2 of 3 nodes since {since}: flux-1-2-i2 waits for a node: {NO_ROOM}",
    )
    start(world, 2)
    tells(world, round_=3, step=31)
    world.settle()
    assert degraded(world)[0] == "AsExpected"
