"""Lost nodes, pods that cannot go, and nodes that are better avoided."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, spec
from worlds import World, condition

from oarlock_operator.decide import decide
from oarlock_operator.model.observation import Ending
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import CreatePods, DeletePods

GONE = Node(name="node-1", exists=False, ready=False)
UNREACHABLE = Node(name="node-1", ready=False, unreachable=True, boot_id="boot-1")
NOT_READY = Node(name="node-1", ready=False, boot_id="boot-1")


def lose(world: World, node: Node) -> None:
    world.nodes = {**world.nodes, node.name: node}


@pytest.mark.parametrize("node", [GONE, UNREACHABLE, NOT_READY], ids=["gone", "unreachable", "not-ready"])
def test_a_lost_node_starts_the_gang_elsewhere_at_once(node: Node) -> None:
    world = World()
    world.running(step=20)
    lose(world, node)
    world.one_pass()
    status = world.job.status
    assert (status.attempt, status.reason, status.restarts.infrastructure) == (2, "NodeLost", 1)
    assert status.last_fault is not None
    assert (status.last_fault.fault_class, status.last_fault.node_name) == ("NodeLost", "node-1")
    assert [(entry.name, entry.strict) for entry in status.avoided_nodes] == [("node-1", False)]


def test_nobody_waits_for_a_kubelet_that_is_not_heard_from() -> None:
    world = World()
    world.running()
    lose(world, UNREACHABLE)
    world.settle()
    assert world.pods["flux-1-1"].deleting
    world.kubelets()
    world.settle()
    assert sorted(world.pods) == ["flux-1-1", "flux-2-0", "flux-2-1"], "the stuck pod blocks nothing"


def test_a_kubelet_that_only_reports_trouble_stops_its_pods_before_the_new_gang_starts() -> None:
    world = World()
    world.running()
    lose(world, NOT_READY)
    world.settle()
    world.pods.pop("flux-1-0", None)
    assert not any(isinstance(action, CreatePods) for action in decide(world.observe()).actions)


def test_a_gang_that_trains_on_is_left_alone_while_its_node_is_only_not_ready() -> None:
    world = World()
    world.running()
    world.answering = frozenset(pod.uid for pod in world.pods.values())
    lose(world, NOT_READY)
    world.settle()
    assert world.job.status.attempt == 1
    assert condition(world, "Degraded") == ("True", "NodeNotReady")


def test_a_pod_of_a_node_that_is_gone_counts_as_lost_without_any_right_on_nodes() -> None:
    world = World()
    world.running()
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], deleting=True, node_lost=True)
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.reason) == (2, "NodeLost")


def test_what_a_pod_said_before_its_node_was_lost_is_believed() -> None:
    world = World()
    world.running()
    world.end(1, 1)
    lose(world, UNREACHABLE)
    world.one_pass()
    assert world.job.status.reason == "ApplicationError"


def test_peers_that_were_told_to_go_do_not_take_the_blame_from_the_lost_node() -> None:
    world = World()
    world.running()
    lose(world, UNREACHABLE)
    world.one_pass()
    world.end(0, 137, attempt=1, with_report=False)
    world.settle()
    assert world.job.status.last_fault is not None
    assert world.job.status.last_fault.fault_class == "NodeLost"


def test_a_stuck_pod_is_deleted_by_force_after_its_time_on_a_lost_node_only() -> None:
    world = World()
    world.running()
    lose(world, UNREACHABLE)
    world.settle()
    world.now += timedelta(seconds=34)
    assert not forced(world)
    world.now += timedelta(seconds=2)
    assert forced(world) == ["flux-1-1"]
    plan = world.one_pass()
    assert any(event.reason == "PodForceDeleted" and "node-1" in event.message for event in plan.events)
    assert "flux-1-1" not in world.pods


def forced(world: World) -> list[str]:
    return [
        name
        for action in decide(world.observe()).actions
        if isinstance(action, DeletePods) and action.grace_seconds == 0
        for name, _ in action.pods
    ]


def test_nothing_is_deleted_by_force_where_the_job_forbids_it() -> None:
    world = World(job=job(spec=spec(recovery={"forceDelete": "Never"})))
    world.running()
    lose(world, UNREACHABLE)
    world.settle()
    world.now += timedelta(hours=1)
    assert not forced(world)


def test_a_job_that_is_being_deleted_still_frees_itself_of_stuck_pods() -> None:
    world = World()
    world.running()
    lose(world, GONE)
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], deleting=True, delete_by=world.now)
    world.job = replace(world.job, deleting=True)
    world.now += timedelta(seconds=31)
    plan = decide(world.observe())
    assert plan.status is None
    assert forced(world) == ["flux-1-1"]


def test_a_job_that_is_to_end_ends_although_a_node_is_lost() -> None:
    world = World(job=job(spec=spec(activeDeadlineSeconds=100)))
    world.running()
    lose(world, UNREACHABLE)
    world.now += timedelta(seconds=100)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.completion_time is None, "a pod may still run"
    world.now += timedelta(seconds=331)
    world.settle()
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_pod_that_does_not_stop_is_given_up_and_its_node_avoided() -> None:
    world = World()
    world.running()
    world.end(0, 81)
    world.settle()
    world.now += timedelta(seconds=36)
    world.settle()
    assert [(entry.name, entry.strict) for entry in world.job.status.avoided_nodes] == [("node-1", True)]
    assert {"flux-2-0", "flux-2-1"} <= set(world.pods)


def test_a_node_that_refuses_a_pod_twice_is_avoided_strictly() -> None:
    world = World()
    strictness = []
    for attempt in (1, 2):
        world.running()
        name = f"flux-{attempt}-1"
        ending = Ending(None, reason="UnexpectedAdmissionError", message="device plugin")
        world.pods[name] = replace(world.pods[name], ending=ending)
        world.settle()
        world.kubelets()
        world.settle()
        strictness.append([(entry.name, entry.strict) for entry in world.job.status.avoided_nodes])
    assert strictness == [[("node-1", False)], [("node-1", True)]]


def test_a_report_against_the_node_avoids_it_and_one_pass_more_changes_nothing() -> None:
    world = World()
    world.running()
    world.end(1, 80)
    world.one_pass()
    entries = world.job.status.avoided_nodes
    assert [(entry.name, entry.strict, entry.reason) for entry in entries] == [
        ("node-1", True, "GPUFault in attempt 1")
    ]
    world.settle()
    assert world.job.status.avoided_nodes == entries


def test_victims_are_never_blamed() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    world.end(1, 82)
    world.settle()
    assert world.job.status.avoided_nodes == ()


def test_an_avoided_node_may_be_used_again_after_its_time_or_a_boot() -> None:
    world = World()
    world.running()
    lose(world, UNREACHABLE)
    world.one_pass()
    assert world.job.status.avoided_nodes[0].boot_id == "boot-1"
    world.pods.pop("flux-1-1")
    world.kubelets()
    lose(world, Node(name="node-1", boot_id="boot-2"))
    world.running()
    world.end(0, 1)
    world.settle()
    assert world.job.status.avoided_nodes == ()


def test_the_new_pods_keep_off_the_avoided_nodes() -> None:
    world = World()
    world.running()
    world.end(1, 80)
    world.pods["flux-1-0"] = replace(world.pods["flux-1-0"], ending=Ending(82))
    plan = decide(world.observe())
    created = next(action for action in plan.actions if isinstance(action, CreatePods))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for manifest in created.manifests:
        terms = manifest["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
        assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}]


def test_too_few_healthy_nodes_are_told_with_what_to_do() -> None:
    world = World()
    world.running()
    world.end(1, 80)
    world.settle()
    world.kubelets()
    world.settle()
    world.pods["flux-2-1"] = replace(world.pods["flux-2-1"], obstacle="0/2 nodes are available")
    world.settle()
    assert condition(world, "Scheduled") == ("False", "NotEnoughHealthyNodes")
    message = next(c.message for c in world.job.status.conditions if c.type == "Scheduled")
    assert message == (
        "avoided: node-1 (GPUFault in attempt 1). Repair one and have it used again (oarlock uncordon node-1), or suspend, "
        "lower spec.nodes, and resume. 0/2 nodes are available"
    )
    assert (world.job.status.reason, world.job.status.message) == ("NotEnoughHealthyNodes", message), "the same first"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_silent_agent_is_a_hang_only_if_its_kubelet_misses_it_too(rank: int) -> None:
    world = World(job=job(spec=spec(recovery={"hangSeconds": 100})))
    world.running()
    name = f"flux-1-{rank}"
    uid = world.pods[name].uid
    world.silent = {uid: 301}
    world.settle()
    assert world.job.status.attempt == 1
    assert condition(world, "Degraded") == ("True", "StatusSilent")
    world.pods[name] = replace(world.pods[name], ready=False)
    world.silent = {uid: 299}
    world.settle()
    assert world.job.status.attempt == 1
    world.silent = {uid: 301}
    world.one_pass()
    assert (world.job.status.attempt, world.job.status.reason) == (2, "AgentSilent")
    assert world.job.status.restarts.application == 1


def test_an_old_pod_on_a_node_in_trouble_does_not_degrade_the_gang_that_left_it() -> None:
    world = World()
    world.running()
    lose(world, UNREACHABLE)
    world.settle()
    world.kubelets()
    world.running(step=5)
    assert "flux-1-1" in world.pods, "it cannot go"
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_victims_that_speak_before_their_peers_node_is_missed_do_not_hide_it() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    world.one_pass()
    world.now += timedelta(seconds=2)
    world.settle()
    assert world.job.status.attempts[-1].reason == "PeerLost"
    assert (world.job.status.message or "").endswith("Why, is looked for until all pods have stopped")
    world.nodes["node-1"] = Node(name="node-1", ready=False, unreachable=True)
    world.settle()
    status = world.job.status
    assert status.attempts[-1].reason == "NodeLost"
    assert status.last_fault is not None
    assert (status.last_fault.fault_class, status.last_fault.node_name) == ("NodeLost", "node-1")
    assert [(node.name, node.strict) for node in status.avoided_nodes] == [("node-1", False)]
    assert (status.attempt, status.restarts.infrastructure) == (2, 1)


def test_once_all_pods_have_stopped_a_lost_peers_cause_is_looked_for_no_more() -> None:
    world = World()
    world.running()
    world.end(0, 82)
    world.now += timedelta(seconds=2)
    world.one_pass()
    world.settle()
    assert "looked for" in (world.job.status.message or "")
    world.kubelets()
    world.settle()
    assert world.job.status.recovery.stage != "Drain"
    assert world.job.status.reason == "PeerLost"
    assert "looked for" not in (world.job.status.message or "")
