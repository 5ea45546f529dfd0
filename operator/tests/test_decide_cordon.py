"""Cordoning: only with evidence against the hardware, only as far as every brake allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import START, job, report, spec
from worlds import World

from oarlock_api.contract.report import Gpu
from oarlock_operator.marks import Mark
from oarlock_operator.observation import Brakes, CordonMark, Node, Pool
from oarlock_operator.plan import CordonNode, CreatePods, LatchBreaker

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
    assert entry.reason.startswith("GPUFault in attempt 1: pod flux-1-1 on node-1: GPU 5 (GPU-5, serial 165) XID 79")


def test_a_code_without_the_drivers_evidence_takes_a_node_from_nobody() -> None:
    """Any program can exit with 80, and a text can say anything."""
    world = World(job=job(), may_cordon=True, pool=POOL)
    world.running()
    world.end(1, 80)
    assert cordons(world) == []
    assert world.job.status.avoided_nodes[0].strict, "the job itself keeps off"


def test_the_pool_is_asked_for_only_where_a_cordon_is_in_question() -> None:
    assert broken(pool=None).one_pass(ask=False).wants_pool
    for code in (1, 81, 82, 83, 84, 86, 87):
        assert not broken(code, pool=None).one_pass(ask=False).wants_pool


def test_a_kill_after_the_write_loses_no_cordon_and_the_new_gang_ends_the_repetition() -> None:
    world = broken()
    world.one_pass()
    assert cordons(world) == ["node-1"], "again, until the new gang stands"
    world.kubelets()
    world.settle()
    assert world.job.status.attempts[-1].created_time is not None
    assert cordons(world) == []


def test_a_job_that_ends_for_it_still_has_its_broken_node_cordoned() -> None:
    world = broken(maxInfrastructureRestarts=0)
    assert cordons(world) == ["node-1"]
    assert world.job.status.recovery.stage == "Stopping"
    assert cordons(world) == ["node-1"], "again, until its pods have stopped"
    world.kubelets()
    world.settle()
    assert (world.job.status.phase, cordons(world)) == ("Failed", [])


def test_nothing_is_cordoned_after_the_gang_was_made() -> None:
    world = broken()
    world.settle()
    world.kubelets()
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


RECENT = CordonMark("other", "default/another", START)
OLD = CordonMark("other", "default/another", START - timedelta(days=2))


@pytest.mark.parametrize(
    ("pool", "words", "latches"),
    [
        (replace(POOL, ours=(RECENT, replace(RECENT, node="third"))), "2 are allowed", True),
        (replace(POOL, ours=tuple(replace(OLD, node=f"n{i}") for i in range(10))), "more than half", True),
        (replace(POOL, ours=(replace(RECENT, job="default/flux"),)), "this job had a node cordoned", False),
        (replace(POOL, schedulable=2), "1 nodes would be left for a gang of 2", False),
        (replace(POOL, latched="somebody"), "the breaker is latched (somebody)", False),
    ],
    ids=["number", "half", "one per job", "below the gang", "latched"],
)
def test_every_brake_holds_and_says_so(pool: Pool, words: str, latches: bool) -> None:  # noqa: FBT001
    world = broken(pool=pool)
    plan = world.one_pass()
    assert not [action for action in plan.actions if isinstance(action, CordonNode)]
    told = next(event.message for event in plan.events if event.reason == "CordonRefused")
    assert words in told
    assert any(isinstance(action, LatchBreaker) for action in plan.actions) == latches
    assert world.job.status.avoided_nodes[0].name == "node-1"


@pytest.mark.parametrize(
    "pool",
    [
        replace(POOL, ours=(RECENT,)),
        replace(POOL, size=200, schedulable=200, ours=tuple(replace(RECENT, node=f"n{i}") for i in range(19))),
        replace(POOL, schedulable=2, brakes=Brakes(allow_below_gang=True)),
    ],
    ids=["one of two", "a share of a large pool", "allowed below the gang"],
)
def test_within_the_brakes_it_is_cordoned(pool: Pool) -> None:
    assert cordons(broken(pool=pool)) == ["node-1"]


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
    world.nodes = {"node-1": Node(name="node-1", mark=Mark("cordoned", enforced=True))}
    world.kubelets()
    world.running()
    world.end(0, 1)
    world.one_pass()
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-1"], "while it is cordoned"
    world.kubelets()
    world.running()
    world.nodes = {"node-1": Node(name="node-1")}  # mended, uncordoned
    world.now += timedelta(hours=2)
    world.end(0, 80, xid=79)
    plan = world.one_pass()
    assert [action.node for action in plan.actions if isinstance(action, CordonNode)] == ["node-0"]
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-0"]


def test_a_node_that_is_still_to_be_cordoned_is_not_taken_for_one_that_was_given_back() -> None:
    world = broken()
    world.nodes = {"node-1": Node(name="node-1")}
    world.one_pass()
    assert [node.name for node in world.job.status.avoided_nodes] == ["node-1"]


def test_a_dry_run_latches_no_breaker_for_others() -> None:
    world = broken(pool=replace(POOL, ours=(RECENT, replace(RECENT, node="third"))), cordon="DryRun")
    plan = world.one_pass()
    assert not any(isinstance(action, LatchBreaker) for action in plan.actions)
    assert "would not be cordoned: 2 nodes" in next(e.message for e in plan.events if e.reason == "CordonDryRun")


def test_a_job_whose_pods_have_all_ended_is_over_only_after_its_node_was_cordoned() -> None:
    world = broken_all(2, maxInfrastructureRestarts=0)
    plan = world.one_pass()
    assert [type(action) for action in plan.actions if isinstance(action, CordonNode)]
    assert world.job.status.completion_time is None, "a kill now loses no cordon"
    assert cordons(world), "once more"
    world.settle()
    assert world.job.status.phase == "Failed"
