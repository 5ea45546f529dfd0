"""A lost pod is made anew by itself while the others stand by: when, at what cost, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import job, spec
from made_pods import environment
from worlds import World

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import LostPod
from oarlock_api.contract.status import MemoryStatus
from oarlock_operator.decide import decide
from oarlock_operator.model.observation import Defaults, Ending
from oarlock_operator.model.observed_nodes import Node, Pool
from oarlock_operator.model.plan import CreatePods, DeletePods, Event, Look, Need, Plan, SelectAttempt

NODES = 4
KEYED = Defaults(trainer_image="trainer:test", keys=(b"k" * 32,))


def gang(*, nodes: int = NODES, changes: dict[str, Any] | None = None, **recovery: object) -> World:
    """A gang that trains, whose lost pods are made anew one by one."""
    world = World(job=job(spec=spec(nodes=nodes, recovery={"inPlace": "Auto", **recovery}, **(changes or {}))))
    world.defaults = KEYED
    world.running(step=20)
    return world


def kill(world: World, rank: int) -> None:
    """The pod is killed with its agent: it says nothing."""
    world.end(rank, 137, with_report=False)


def cut_off(world: World, rank: int, *, unreachable: bool) -> str:
    """The node of that pod is not heard from any more, or says itself that it is not ready."""
    node = world.pod(rank).node
    world.nodes[node] = Node(name=node, ready=False, unreachable=unreachable, boot_id="1")
    return node


def go_on(world: World, *ranks: int, resumed: int = 15) -> Plan:
    """The new pods start, and their leader tells of the round's end and of the next one's first step."""
    world.start_all()
    for rank in ranks:
        world.end_round(82, rank=rank, why="it was lost", step=20, resumed_step=resumed, lost_pod=True)
    world.step(resumed + 1)
    return world.one_pass()


def states(world: World) -> tuple[int, str | None, list[tuple[int, int]]]:
    recovery = world.job.status.recovery
    return world.job.status.attempt, recovery.stage, [(one.rank, one.incarnation) for one in recovery.replacing]


def living(world: World) -> list[str]:
    return sorted(pod.name for pod in world.pods.values() if not pod.stopped and not pod.deleting)


def warnings(plan: Plan) -> list[Event]:
    return [event for event in plan.events if event.reason == "PodReplaced"]


# What happens


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


def test_new_pods_that_are_always_lost_use_the_budget_up_though_a_checkpoint_was_made_before() -> None:
    world = gang(maxInfrastructureRestarts=3)
    world.step(20, saved=20)
    world.now += timedelta(seconds=11)
    world.one_pass()
    world.progress = None
    for _ in range(4):
        world.start_all()
        pod = world.pod(1)
        world.nodes.clear()
        world.pods[pod.name] = replace(pod, gone=True, node_lost=True)
        world.one_pass()
    assert world.job.status.reason == "InfrastructureRestartsExhausted"


def test_losses_one_after_the_other_without_a_newer_checkpoint_end_the_job() -> None:
    world = gang(maxRestartsWithoutProgress=2)
    for _ in range(3):
        pod = world.pod(2)
        world.pods[pod.name] = replace(pod, gone=True)
        world.progress = None
        world.one_pass()
        if world.job.status.recovery.stage == "Replace":
            go_on(world, 2, resumed=0)
    assert world.job.status.reason == "NoProgress"


def losses_of(world: World, *, told_of_memory: bool) -> list[int]:
    """Five pods are lost at later and later steps; each round goes on from memory, where the last one was."""
    without = []
    for step in range(30, 80, 10):
        held(world, step, step if told_of_memory else None)
        pod = world.pod(2)
        world.pods[pod.name] = replace(pod, gone=True)
        world.progress = None
        world.one_pass()
        if world.job.status.recovery.stage == "Replace":
            go_on(world, 2, resumed=step)
        without.append(world.job.status.restarts.without_progress)
    return without


def held(world: World, step: int, in_memory: int | None, *, copied: bool | None = True) -> None:
    """Training is at this step, and all nodes have a state in memory."""
    world.now += timedelta(seconds=11)
    world.step(step)
    assert world.progress is not None
    if in_memory is not None:
        world.progress = replace(world.progress, memory=MemoryStatus(in_memory, world.now.isoformat(), copied=copied))
    world.one_pass()


@pytest.mark.parametrize("told_of_memory", [True, False])
def test_losses_after_which_the_gang_goes_on_from_later_and_later_steps_in_memory_never_end_the_job(
    told_of_memory: bool,  # noqa: FBT001
) -> None:
    world = gang()
    without = losses_of(world, told_of_memory=told_of_memory)
    assert states(world) == (1, None, [])
    assert max(without) <= 1


def test_losses_at_the_same_step_end_the_job_though_the_gang_goes_on_from_memory() -> None:
    world = gang(maxRestartsWithoutProgress=2)
    for _ in range(6):
        held(world, 20, 20)
        pod = world.pod(2)
        world.pods[pod.name] = replace(pod, gone=True)
        world.progress = None
        world.one_pass()
        if world.job.status.recovery.stage == "Replace":
            go_on(world, 2, resumed=20)
    assert world.job.status.reason == "NoProgress"
    assert world.job.status.attempts[0].incarnation == 4, "the first one counts as progress, and three as none"


@pytest.mark.parametrize("before", ["a killed pod", "a round"])
def test_a_killed_pod_of_a_gang_that_came_further_in_memory_is_made_anew_alone_though_the_program_failed_before(
    before: str,
) -> None:
    world = gang()
    if before == "a round":
        world.end_round(1, step=30, resumed_step=30)
    else:
        held(world, 30, 30)
        world.progress = None
        kill(world, 2)
        world.one_pass()
        go_on(world, 2, resumed=30)
    held(world, 60, 59)
    world.progress = None
    kill(world, 1)
    world.one_pass()
    assert states(world)[:2] == (1, "Replace")
    assert world.job.status.restarts.application == 1


@pytest.mark.parametrize("copied", [False, None])
def test_a_state_in_memory_that_is_on_one_node_alone_is_lost_with_a_pod_and_no_progress(copied: bool | None) -> None:  # noqa: FBT001
    world = gang()
    world.end_round(1, step=30, resumed_step=30)
    held(world, 60, 59, copied=copied)
    world.progress = None
    kill(world, 1)
    world.one_pass()
    assert states(world)[0] == 2
    assert world.job.status.restarts.application == 2


def missed(world: World, *ranks: int, code: int = 82, ago: float = 0.0) -> None:
    """The leader has lost these pods, and tells since when by its own clock."""
    world.step(20)
    since = (world.now - timedelta(seconds=ago)).isoformat()
    lost = tuple(LostPod(rank=rank, incarnation=1, code=code, why="silent for 5 s", lost_at=since) for rank in ranks)
    assert world.progress is not None
    world.progress = replace(world.progress, lost=lost, figures=Figures())


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


def test_where_the_service_names_all_pods_it_is_narrowed_only_for_a_rank_0_that_may_still_run() -> None:
    def chosen(world: World) -> list[dict[str, str]]:
        return [action.selector for action in world.one_pass().actions if isinstance(action, SelectAttempt)]

    dead = gang(memory={"everySteps": "Auto"})
    kill(dead, 0)
    assert chosen(dead) == []
    cut = gang(memory={"everySteps": "Auto"})
    cut_off(cut, 0, unreachable=True)
    (narrow,) = chosen(cut)
    assert narrow["oarlock.dev/incarnation"] == "2"
    cut.start_all()
    cut.step(16, resumed=15)
    assert cut.progress is not None
    cut.progress = replace(cut.progress, round=2)
    assert chosen(cut) == []
    assert states(cut) == (1, None, [])
    assert chosen(cut) == [], "it may still run"
    cut.pods.pop("flux-1-0")
    (wide,) = chosen(cut)
    assert "oarlock.dev/rank" not in wide
    assert chosen(cut) == []


def test_a_new_rank_0_is_the_one_that_the_service_names_and_its_first_step_books_the_round() -> None:
    world = gang()
    world.step(20, saved=15)
    world.now += timedelta(seconds=11)
    world.one_pass()
    world.progress = None
    kill(world, 0)
    plan = world.one_pass()
    (chosen,) = [action.selector for action in plan.actions if isinstance(action, SelectAttempt)]
    assert chosen["oarlock.dev/incarnation"] == "2"
    world.start_all()
    world.step(16, resumed=15)
    assert world.progress is not None
    world.progress = replace(world.progress, round=2)
    world.one_pass()
    assert states(world) == (1, None, [])
    (one,) = world.job.status.rounds
    assert (one.rung, one.round, one.rank, one.resumed_from_step, one.lost_steps) == ("ReplacePod", 1, 0, 15, 5)
    assert world.job.status.restarts.application == 1
    world.ended[1] = [replace(one, number=2) for one in ended_by_a_rank(world)]
    world.step(16)
    assert world.progress is not None
    world.progress = replace(world.progress, round=3)
    world.one_pass()
    assert [(one.round, one.rung) for one in world.job.status.rounds] == [(1, "ReplacePod"), (2, "RestartRanks")]
    assert world.job.status.restarts.application == 2, "no round is charged that nobody heard of"


@pytest.mark.parametrize("told", [3.5, None])
def test_a_gang_is_down_since_the_loss_of_rank_0_and_not_since_the_new_one_s_start(told: float | None) -> None:
    world = gang()
    kill(world, 0)
    world.one_pass()
    wasted = world.job.status.wasted_gpu_seconds
    world.start_all()
    world.now += timedelta(seconds=90)
    if told:
        world.end_round(82, rank=0, step=20, resumed_step=20, lost_pod=True, down_seconds=told)
    world.step(21, resumed=20)
    assert world.progress is not None
    world.progress = replace(world.progress, round=2, first_step_at=world.now.isoformat())
    world.one_pass()
    (one,) = world.job.status.rounds
    assert (one.rung, one.rank, one.down_seconds) == ("ReplacePod", 0, 90.0)
    assert world.job.status.wasted_gpu_seconds == wasted + 90 * NODES * 2
    assert states(world) == (1, None, [])


def ended_by_a_rank(world: World) -> list[Any]:
    world.end_round(1, step=16, resumed_step=15)
    return world.ended[1][-1:]


def test_a_pod_whose_place_is_taken_is_told_to_go_however_late_it_is_seen() -> None:
    world = gang()
    old = world.pods["flux-1-1"]
    cut_off(world, 1, unreachable=True)
    world.one_pass()
    go_on(world, 1)
    world.pods["flux-1-1"] = old
    world.nodes.clear()
    world.one_pass()
    assert world.pods["flux-1-1"].deleting
    assert states(world) == (1, None, [])


def test_a_round_of_a_pod_that_came_back_before_it_was_stopped_is_not_charged_again() -> None:
    world = gang()
    missed(world, 3, ago=5)
    world.one_pass()
    counts = world.job.status.restarts
    world.end_round(82, rank=3, why="silent for 5 s", step=20, resumed_step=15)
    world.step(16)
    world.one_pass()
    assert world.job.status.restarts == counts
    assert [(one.round, one.rung) for one in world.job.status.rounds] == [(1, "ReplacePod")]
    world.start_all()
    world.end_round(1, rank=3, step=20, resumed_step=15)
    world.step(16)
    world.one_pass()
    assert world.job.status.restarts.application == counts.application + 1, "the next one's ranks failed by themselves"


def test_what_ranks_ended_by_before_their_pod_was_lost_is_charged_besides() -> None:
    world = gang()
    cut_off(world, 2, unreachable=True)
    world.one_pass()
    before = world.job.status.restarts.application
    world.start_all()
    world.end_round(1, rank=2, why="ValueError: x", step=20, resumed_step=15)
    world.step(16)
    world.one_pass()
    assert world.job.status.restarts.application == before + 1


def test_a_round_that_no_pod_was_lost_in_is_charged_whatever_its_leader_says() -> None:
    world = gang(maxInfrastructureRestarts=9)
    world.end_round(82, rank=1, resumed_step=15, lost_pod=True)
    world.step(16)
    world.one_pass()
    assert [(one.round, one.rung) for one in world.job.status.rounds] == [(1, "RestartRanks")]
    assert world.job.status.restarts.infrastructure == 1
    world.progress = None
    kill(world, 2)
    world.one_pass()
    go_on(world, 2)
    counts = world.job.status.restarts
    world.end_round(82, rank=2, resumed_step=15, lost_pod=True)
    world.step(16)
    world.one_pass()
    assert [one.rung for one in world.job.status.rounds] == ["RestartRanks", "ReplacePod", "RestartRanks"]
    assert world.job.status.restarts.infrastructure == counts.infrastructure + 1, "it was lost once, not twice"


def test_a_checkpoint_since_the_last_failure_of_the_program_forgets_it_and_a_killed_pod_is_made_anew_alone() -> None:
    world = gang()
    lost_before(world)
    world.step(20, saved=20)
    world.now += timedelta(seconds=11)
    world.one_pass()
    kill(world, 2)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])
    assert world.job.status.restarts.application == 1


# When all pods are made anew instead


@pytest.mark.parametrize(
    "code",
    [1, 81, 82, 84, 86, 87],
    ids=["program", "restart", "victim", "storage", "request", "preflight"],
)
def test_what_a_new_pod_would_not_mend_is_a_new_attempt(code: int) -> None:
    world = gang()
    world.end(2, code)
    world.ended_seconds = 2.0
    world.one_pass()
    assert states(world)[:2] in [(2, "Drain"), (2, "Schedule")]


def test_a_new_pod_that_is_not_up_yet_gets_a_faults_grace_where_the_others_get_the_time_to_save() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    new = world.pod(2)
    world.pods[new.name] = replace(new, node="node-2", scheduled=True, started=True)
    world.end(1, 86)
    plans = [world.one_pass() for _ in range(3)]
    told = [act for plan in plans for act in plan.actions if isinstance(act, DeletePods)]
    graces = {name: act.grace_seconds for act in told for name, _ in act.pods}
    assert graces == {"flux-1-0": None, new.name: 5, "flux-1-3": None}


@pytest.mark.parametrize("code", [85, 88])
def test_what_no_start_mends_ends_the_job(code: int) -> None:
    world = gang()
    world.end(2, code)
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.recovery.stage) == (1, "Stopping")


def deleted_by_hand(world: World) -> None:
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], deleting=True, delete_by=world.now + timedelta(60))


def all_lost(world: World) -> None:
    for rank in range(NODES):
        kill(world, rank)


def settings_changed(world: World) -> None:
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "recovery": {"inPlace": "Auto", "hangSeconds": 99}}))


def operator_changed(world: World) -> None:
    world.pods["flux-1-3"] = replace(world.pods["flux-1-3"], made_from="another release's")


def lost_before(world: World) -> None:
    counts = world.job.status.restarts.model_copy(update={"application": 1})
    world.job = replace(world.job, status=world.job.status.model_copy(update={"restarts": counts}))


def preempted(world: World) -> None:
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], disrupted="PreemptionByScheduler")


def out_of_memory(world: World) -> None:
    world.pods["flux-1-2"] = replace(world.pods["flux-1-2"], ending=Ending(137, reason="OOMKilled"))


@pytest.mark.parametrize(
    "what",
    [deleted_by_hand, all_lost, settings_changed, operator_changed, lost_before, preempted, out_of_memory],
    ids=lambda f: f.__name__,
)
def test_any_doubt_is_a_new_attempt(what: Any) -> None:
    world = gang()
    kill(world, 2)
    what(world)
    world.one_pass()
    assert states(world)[0] == 2


def test_more_than_eight_at_once_are_a_new_attempt() -> None:
    world = gang(nodes=12)
    for rank in range(1, 10):
        kill(world, rank)
    world.one_pass()
    assert states(world)[0] == 2


@pytest.mark.parametrize(
    ("recovery", "defaults"),
    [({}, KEYED), ({"inPlace": "Never"}, KEYED), ({"inPlace": "Auto"}, replace(KEYED, keys=()))],
    ids=["default", "Never", "without a key"],
)
def test_by_default_and_without_a_key_nothing_is_replaced_and_no_pod_is_told_of_it(
    recovery: dict[str, object], defaults: Defaults
) -> None:
    world = World(job=job(spec=spec(nodes=NODES, recovery=recovery)), defaults=defaults)
    world.running(step=20)
    kill(world, 2)
    world.one_pass()
    assert states(world)[0] == 2
    manifest = world.made["flux-1-1"]
    assert "oarlock.dev/made-from" not in manifest["metadata"]["annotations"]
    assert "OARLOCK_REPLACES_PODS" not in environment(manifest)


# When it does not come to its end


def test_who_waited_in_vain_and_left_is_a_new_attempt_at_no_further_cost() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    counts = world.job.status.restarts
    for rank in (0, 1, 3):
        world.end(rank, 82)
    world.ended_seconds = 2.0
    world.settle()
    world.kubelets()
    world.settle()
    assert states(world)[:2] == (2, "Schedule")
    assert (world.job.status.restarts, world.job.status.restart_count) == (counts, 1)


def test_a_standby_that_nobody_ends_is_ended_by_the_operator_at_no_further_cost() -> None:
    world = gang(standbySeconds=30)
    kill(world, 2)
    world.one_pass()
    counts = world.job.status.restarts
    first = world.pod(0).uid
    world.silent[first] = 60.0
    world.now += timedelta(seconds=90)
    world.one_pass()
    assert states(world)[:2] == (1, "Replace")
    world.now += timedelta(seconds=1)
    world.silent[first] = 59.0
    world.one_pass()
    assert states(world)[:2] == (1, "Replace"), "an operator that has just started has not heard of a round yet"
    world.silent[first] = 60.0
    world.one_pass()
    assert states(world)[:2] == (2, "Drain")
    assert (world.job.status.restarts, world.job.status.restart_count) == (counts, 1)
    assert world.job.status.attempts[-1].reason == "ProcessKilled"
    assert "standbySeconds (30)" in (world.job.status.message or "")


def round_begins(world: World) -> None:
    """The gang is whole again: its ranks start, and have made no step yet."""
    world.start_all()
    world.end_round(82, rank=2, why="it was lost", step=20, resumed_step=None, lost_pod=True)
    world.step(0)
    assert world.progress is not None
    world.progress = replace(world.progress, phase="Starting", figures=Figures(), resumed_from_step=None)


def test_a_gang_that_is_whole_again_may_load_and_compile_for_longer_than_others_stand_by() -> None:
    world = gang(standbySeconds=30)
    kill(world, 2)
    world.one_pass()
    round_begins(world)
    world.one_pass()
    world.now += timedelta(seconds=600)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)])
    world.progress = None
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)]), "the next operator has not asked yet"
    world.step(16)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_a_second_loss_while_a_gang_loads_for_long_costs_its_own_pod_alone() -> None:
    world = gang(standbySeconds=30)
    kill(world, 2)
    world.one_pass()
    round_begins(world)
    world.one_pass()
    world.now += timedelta(seconds=600)
    missed(world, 3, code=80, ago=1)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2)]), "it may still say how it ends"
    missed(world, 3, code=80, ago=30)
    world.one_pass()
    assert states(world) == (1, "Replace", [(2, 2), (3, 3)])


def test_a_gang_that_still_waits_for_another_pod_has_not_begun_a_round() -> None:
    world = gang(standbySeconds=30)
    kill(world, 2)
    world.one_pass()
    round_begins(world)
    assert world.progress is not None
    world.progress = replace(world.progress, lost=(LostPod(rank=2, incarnation=1, code=82, why="silent"),))
    world.now += timedelta(seconds=91)
    world.one_pass()
    assert states(world)[:2] == (2, "Drain")


def test_a_pod_that_is_lost_in_the_first_round_of_a_new_rank_0_is_waited_for_until_the_next() -> None:
    world = gang(standbySeconds=30)

    def tells(number: int) -> None:
        world.step(16, resumed=15)
        assert world.progress is not None
        world.progress = replace(world.progress, round=number)

    kill(world, 0)
    world.one_pass()
    world.start_all()
    world.now += timedelta(seconds=5)
    tells(2)
    cut_off(world, 2, unreachable=True)
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2), (2, 3)])
    world.start_all()
    world.one_pass()
    assert states(world) == (1, "Replace", [(0, 2), (2, 3)]), "it only imports yet"
    tells(3)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_a_trainer_that_tells_of_no_step_trains_once_its_round_began() -> None:
    own = {"training": None, "custom": {"command": ["python3", "train.py"]}, "pod": {"image": "mine"}}
    world = gang(changes=own)
    kill(world, 2)
    world.one_pass()
    round_begins(world)
    world.one_pass()
    assert states(world) == (1, None, [])


def test_an_old_pod_that_does_not_stop_is_not_waited_for_to_the_end() -> None:
    world = gang()
    cut_off(world, 1, unreachable=False)
    world.one_pass()
    world.now += timedelta(seconds=37)
    world.settle()
    assert states(world)[0] == 2


@pytest.mark.parametrize("change", [{"inPlace": "Never"}, {"inPlace": "Auto", "hangSeconds": 99}])
def test_a_change_meanwhile_that_new_pods_would_differ_by_is_a_new_attempt(change: dict[str, object]) -> None:
    world = gang()
    cut_off(world, 1, unreachable=False)
    world.one_pass()
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "recovery": change}))
    world.kubelets()
    world.pods.pop("flux-1-1")
    world.one_pass()
    assert states(world)[0] == 2


def test_a_suspension_meanwhile_stops_the_new_pod_too() -> None:
    world = gang()
    kill(world, 2)
    world.one_pass()
    raw = world.job.spec.to_manifest() if world.job.spec else {}
    world.job = replace(world.job, spec=spec(**{**raw, "suspend": True}))
    world.settle()
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, states(world)[2]) == ("Suspended", [])
    assert not living(world)


def test_the_end_of_a_job_waits_for_a_pod_whose_place_was_taken() -> None:
    world = gang()
    cut_off(world, 1, unreachable=True)
    world.one_pass()
    go_on(world, 1)
    for rank in range(NODES):
        world.end(rank, 0)
    world.one_pass()
    assert world.job.status.completion_time is None
    del world.pods["flux-1-1"]
    world.settle()
    assert world.job.status.phase == "Succeeded"
