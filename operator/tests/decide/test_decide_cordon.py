"""Cordoning: only with evidence against the hardware, only as far as every brake allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fleets import PlayedNode
from jobs import job, report, spec
from worlds import World, condition

from oarlock_api.contract.node_marks import ONLY_A_CLAIM
from oarlock_api.contract.report import Gpu
from oarlock_operator.decide import decide
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observed_nodes import Node, Pool
from oarlock_operator.model.plan import CordonNode, CreatePods, Look, Need, Plan

POOL = Pool(size=20, schedulable=20)


def broken(code: int = 80, *, pool: Pool | None = POOL, **recovery: object) -> World:
    """A gang of which rank 1 has ended with a report against its node."""
    world = World(job=job(spec=spec(recovery=recovery)), may_cordon=True, pool=pool)
    world.running()
    world.end(1, code, **({"xid": 79} if code == 80 else {}))
    return world


def cordons(world: World) -> list[str]:
    return [action.node for action in world.one_pass().actions if isinstance(action, CordonNode)]


def test_a_report_against_the_hardware_cordons_its_node_in_the_first_pass() -> None:
    world = broken()
    plan = world.one_pass()
    assert [action.node for action in plan.actions if isinstance(action, CordonNode)] == ["node-1"]
    assert [event.reason for event in plan.events if "Cordon" in event.reason] == ["NodeCordoned"]
    (entry,) = world.job.status.cordoned_nodes
    assert entry.name == "node-1"
    assert entry.reason is not None
    assert entry.reason.startswith(
        "GPUFault in attempt 1: pod flux-1-1 on node-1: GPU 5 (GPU-5, serial 165) XID 79 [xid=79];"
    )
    assert world.job.status.last_fault
    assert world.job.status.last_fault.evidence[1].startswith("xid: 79 at ")


def test_what_is_needed_of_a_fault_stays_with_its_attempt_when_the_next_one_comes() -> None:
    world = broken()
    world.settle()
    world.kubelets()
    world.running(step=20)
    world.end(0, 83)
    world.settle()
    first, second = (one.fault for one in world.job.status.attempts[:2])
    assert first
    assert second
    assert (first.fault_class, first.node_name, first.rank, first.gpu_index, first.xid) == ("GPU", "node-1", 1, 5, 79)
    assert first.verdict == "ReplaceNode"
    assert (second.fault_class, second.node_name, second.gpu_index, second.xid) == ("Hang", "node-0", None, None)
    assert world.job.status.last_fault
    assert (world.job.status.last_fault.reason, world.job.status.summary.last_fault) == ("Hang", "node-0 Hang")


@pytest.mark.parametrize(
    ("world", "why"),
    [
        ({"pool": replace(POOL, latched="too many")}, "the breaker is latched (too many)"),
        ({"may_cordon": False}, "the operator has no right to cordon nodes (cordon in the chart's values)"),
        ({"job": job(spec=spec(recovery={"cordon": "Never"}))}, "spec.recovery.cordon is Never"),
        (
            {"job": job(spec=spec(recovery={"cordon": "DryRun"}))},
            "spec.recovery.cordon is DryRun; it would be cordoned",
        ),
        (
            {"job": job(spec=spec(recovery={"cordon": "Never"}, pod={"image": "site/another:1"}))},
            f"spec.recovery.cordon is Never; {ONLY_A_CLAIM}: its image is not the operator's trainer image",
        ),
        ({}, None),
    ],
    ids=["a brake", "no right", "never", "dry run", "never, and only a claim", "cordoned"],
)
def test_why_a_broken_node_is_not_cordoned_stands_in_the_status_as_long_as_it_is_avoided(
    world: dict[str, Any], why: str | None
) -> None:
    here = World(**{"job": job(), "may_cordon": True, "pool": POOL, **world})
    here.running()
    here.end(1, 80, xid=79)
    here.settle()
    (entry,) = here.job.status.avoided_nodes
    assert (entry.not_cordoned or "").startswith(why or "")
    assert (entry.not_cordoned is None) == (why is None)


def test_a_code_without_the_drivers_evidence_takes_a_node_from_nobody() -> None:
    """Any program can exit with 80, and a text can say anything."""
    world = World(job=job(), may_cordon=True, pool=POOL)
    world.running()
    world.end(1, 80)
    assert cordons(world) == []
    assert world.job.status.avoided_nodes[0].strict, "the job itself keeps off"


def test_the_pool_is_asked_for_only_where_a_cordon_is_in_question() -> None:
    assert decide(broken(pool=None).observe()) == Need(Look.POOL)
    for code in (1, 81, 82, 83, 84, 86, 87):
        assert isinstance(decide(broken(code, pool=None).observe()), Plan)


def test_a_cordon_that_an_operator_died_before_is_done_by_the_next_one_and_done_once() -> None:
    world = broken()
    status = decide(replace(world.observe(), pool=world.look())).status
    assert status is not None
    world.write_status(status)  # and no action: it died here
    assert cordons(world) == ["node-1"]
    assert world.cordoned == {"node-1"}
    world.settle()
    assert world.job.status.cordoned_nodes[0].done_time is not None
    assert cordons(world) == []


def test_a_cordon_whose_write_fails_is_tried_again_after_the_new_gang_was_made_and_told_of() -> None:
    world = broken()
    world.fleet.refuses = True
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.attempts[-1].created_time is not None
    world.now += timedelta(seconds=30)
    assert cordons(world) == ["node-1"]
    assert condition(world, "Degraded") == ("True", "CordonFailed")
    assert world.job.status.cordoned_nodes[0].done_time is None
    world.fleet.refuses = False
    world.settle()
    assert world.cordoned == {"node-1"}
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_a_cordon_that_never_succeeds_ends_after_an_hour() -> None:
    world = broken()
    world.fleet.refuses = True
    world.settle()
    world.now += timedelta(seconds=3601)
    assert cordons(world) == []


def test_a_node_whose_cordon_failed_is_not_taken_for_one_that_a_person_gave_back() -> None:
    world = broken()
    world.fleet.refuses = True
    world.settle()
    world.kubelets()
    world.running()
    world.nodes = {"node-1": Node(name="node-1")}  # as it was all along: schedulable
    world.end(0, 1)
    world.settle()
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-1"]


def test_another_machine_under_the_name_of_a_node_that_was_to_be_cordoned_is_left_alone() -> None:
    world = broken()
    world.fleet.refuses = True
    world.one_pass()
    world.fleet.refuses = False
    world.fleet.replace("node-1")
    for _ in range(3):
        assert cordons(world) == []
        world.now += timedelta(seconds=11)
    assert world.cordoned == set()
    assert condition(world, "Degraded")[1] != "CordonFailed", "there is nothing left to do"


def test_a_node_that_a_person_gave_back_before_the_operator_had_seen_its_cordon_stays_given_back() -> None:
    world = broken()
    world.one_pass()
    world.fleet.uncordon("node-1")
    world.settle()
    assert not world.fleet.node("node-1").unschedulable
    assert world.job.status.cordoned_nodes[0].done_time is not None


def test_a_cordon_that_was_seen_is_over_even_if_somebody_wipes_the_node_clean() -> None:
    world = broken()
    world.settle()
    world.fleet.nodes["node-1"] = PlayedNode(uid=world.fleet.node("node-1").uid)
    assert cordons(world) == []


def test_a_job_that_ends_for_it_still_has_its_broken_node_cordoned() -> None:
    world = broken(maxInfrastructureRestarts=0)
    world.fleet.refuses = True
    assert cordons(world) == ["node-1"]
    assert world.job.status.recovery.stage == "Stopping"
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Failed"
    world.fleet.refuses = False
    assert cordons(world) == ["node-1"], "also after its end"
    assert cordons(world) == []


def test_nothing_is_cordoned_after_the_gang_was_made() -> None:
    world = broken()
    world.end(0, 82)
    plan = world.one_pass()
    kinds = [type(action) for action in plan.actions]
    assert kinds.index(CordonNode) < kinds.index(CreatePods)


def test_preflight_blames_the_hardware_only_where_it_names_a_gpu() -> None:
    world = World(job=job(), may_cordon=True, pool=POOL)
    world.running()
    pod = world.pods["flux-1-1"]
    said = replace(report(pod, code=87, at=world.now), gpu=Gpu(index=3, uuid="GPU-1"))
    world.end(1, 87)
    ending = world.pods["flux-1-1"].ending
    assert ending is not None
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], ending=replace(ending, report=said))
    assert cordons(world) == ["node-1"]


@pytest.mark.parametrize("policy", ["Never", "DryRun"])
def test_a_job_may_forbid_cordons_or_have_them_only_told(policy: str) -> None:
    world = broken(cordon=policy)
    plan = world.one_pass()
    assert not [action for action in plan.actions if isinstance(action, CordonNode)]
    assert ("CordonDryRun" in [event.reason for event in plan.events]) == (policy == "DryRun")
    assert world.job.status.avoided_nodes[0].name == "node-1", "its own pods keep off in any case"


def test_without_the_right_to_it_nothing_is_cordoned() -> None:
    world = replace(broken(pool=None), may_cordon=False)
    assert cordons(world) == []
    assert world.job.status.avoided_nodes[0].strict


def test_a_node_that_is_cordoned_already_is_nobodys_business() -> None:
    world = broken(pool=replace(POOL, unschedulable=frozenset({"node-1"}), schedulable=19))
    plan = world.one_pass()
    assert not [event for event in plan.events if "Cordon" in event.reason]
    assert world.job.status.cordoned_nodes == ()


def broken_all(nodes: int, **recovery: object) -> World:
    """Every pod of the gang reports a broken GPU at once: a driver's rollout, or a program that writes reports."""
    world = World(job=job(spec=spec(nodes=nodes, recovery=recovery)), may_cordon=True, pool=POOL)
    world.running()
    for rank in range(nodes):
        world.end(rank, 80, xid=79, uuid=f"GPU-{rank}")
    return world


def test_the_brakes_see_what_the_same_pass_has_cordoned_already() -> None:
    world = broken_all(6)
    assert len(cordons(world)) == 1, "one node for each job and window"
    world.kubelets()
    world.settle()
    assert len(world.cordoned) == 1


def test_a_cordoned_node_that_is_gone_since_still_counts_for_its_job() -> None:
    world = broken()
    world.settle()
    world.kubelets()
    world.running()
    world.end(0, 80, xid=79)
    plan = world.one_pass()  # the pool shows no mark: somebody has replaced the node
    assert not [action for action in plan.actions if isinstance(action, CordonNode) and action.node == "node-0"]
    assert "this job had a node cordoned" in next(e.message for e in plan.events if e.reason == "CordonRefused")


def test_a_node_that_a_person_has_given_back_is_used_again_and_counts_against_no_half() -> None:
    world = broken(pool=Pool(size=3, schedulable=3))
    world.settle()
    assert world.cordoned == {"node-1"}
    world.nodes = {"node-1": Node(name="node-1", maintenance=Maintenance("cordoned", enforced=True))}
    world.kubelets()
    world.running()
    world.end(0, 1)
    world.one_pass()
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-1"], "while it is cordoned"
    world.kubelets()
    world.running()
    world.nodes = {"node-1": Node(name="node-1")}  # mended, uncordoned
    world.fleet.uncordon("node-1")
    world.now += timedelta(hours=2)
    world.end(0, 80, xid=79)
    plan = world.one_pass()
    assert [action.node for action in plan.actions if isinstance(action, CordonNode)] == ["node-0"]
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-0"]


def test_a_job_whose_pods_have_all_ended_is_over_only_after_its_node_was_cordoned() -> None:
    world = broken_all(2, maxInfrastructureRestarts=0)
    plan = world.one_pass()
    assert [type(action) for action in plan.actions if isinstance(action, CordonNode)]
    assert world.job.status.completion_time is None, "a kill now loses no cordon"
    world.settle()
    assert world.job.status.phase == "Failed"
