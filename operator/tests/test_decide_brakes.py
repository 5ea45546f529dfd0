"""The brakes of cordoning: none that a job could move, and each says why it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import START, job, spec
from worlds import World

from oarlock_operator.observed_nodes import Brakes, CordonMark, Pool, PoolNode
from oarlock_operator.plan import CordonNode, LatchBreaker, Plan

POOL = Pool(size=20, schedulable=20)
RECENT = CordonMark("other", "team/another", START, START)
OLD = CordonMark("other", "team/another", START - timedelta(days=2), START - timedelta(days=2))
GPUS = frozenset({"nvidia.com/gpu"})


def broken(*, pool: Pool = POOL, world: World | None = None, **changes: Any) -> World:
    """A gang of which rank 1 has ended with a report against its node."""
    world = world or World(job=job(spec=spec(**changes)), may_cordon=True, pool=pool)
    world.running()
    world.end(1, 80, xid=79)
    return world


def cordons(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, CordonNode)]


def refused(world: World) -> str:
    """Why nothing is cordoned."""
    plan = world.one_pass()
    assert cordons(plan) == []
    assert world.job.status.avoided_nodes[0].name == "node-1", "the job itself keeps off in any case"
    return next(event.message for event in plan.events if event.reason == "CordonRefused")


@pytest.mark.parametrize(
    ("pool", "words", "latches"),
    [
        (replace(POOL, ours=(RECENT, replace(RECENT, node="third"))), "2 are allowed", True),
        (replace(POOL, ours=tuple(replace(OLD, node=f"n{i}") for i in range(10))), "more than half", True),
        (replace(POOL, ours=(replace(RECENT, job="default/flux"),)), "this job had a node cordoned", False),
        (replace(POOL, known=(replace(RECENT, job="default/another"),)), "1 are its share", False),
        (replace(POOL, schedulable=2), "1 nodes would be left for a gang of 2", False),
        (Pool(size=1, schedulable=1), "0 nodes would be left for a gang of 2", False),
        (Pool(size=1, schedulable=1, brakes=Brakes(allow_below_gang=True)), "more than half of the 1 nodes", False),
        (replace(POOL, latched="somebody"), "the breaker is latched (somebody)", False),
        (replace(POOL, unreadable="403 Forbidden"), "the nodes could not be read: 403", False),
        (replace(POOL, members={"node-1": PoolNode(uid="x")}), "none of the nodes with nvidia.com/gpu", False),
        (
            replace(POOL, members={"node-1": PoolNode(uid="x", resources=GPUS, gpus=frozenset({"GPU-7"}))}),
            "none of those that the node publishes",
            False,
        ),
    ],
    ids=[
        "number",
        "half",
        "one per job",
        "share of the namespace",
        "below the gang",
        "the only node",
        "the only node, allowed below the gang",
        "latched",
        "unreadable",
        "no such GPUs",
        "another GPU",
    ],
)
def test_every_brake_holds_and_says_so(pool: Pool, words: str, latches: bool) -> None:  # noqa: FBT001
    world = broken(pool=pool)
    plan = world.one_pass()
    assert cordons(plan) == []
    told = next(event.message for event in plan.events if event.reason == "CordonRefused")
    assert words in told
    assert any(isinstance(action, LatchBreaker) for action in plan.actions) == latches
    assert world.job.status.avoided_nodes[0].name == "node-1"


@pytest.mark.parametrize(
    "pool",
    [
        replace(POOL, ours=(RECENT,)),
        replace(POOL, size=200, schedulable=200, ours=tuple(replace(RECENT, node=f"n{i}") for i in range(19))),
        replace(POOL, size=200, schedulable=200, ours=(replace(RECENT, job="default/another"),)),
        replace(POOL, schedulable=2, brakes=Brakes(allow_below_gang=True)),
        replace(POOL, members={"node-1": PoolNode(uid="uid-of-node-1", resources=GPUS, gpus=frozenset({"165"}))}),
    ],
    ids=["one of two", "a share of a large pool", "of a namespace's, too", "allowed below the gang", "a known serial"],
)
def test_within_the_brakes_it_is_cordoned(pool: Pool) -> None:
    assert cordons(broken(pool=pool).one_pass()) == ["node-1"]


def test_the_evidence_says_whether_the_node_publishes_its_gpus() -> None:
    node = PoolNode(uid="uid-of-node-1", resources=GPUS, gpus=frozenset({"GPU-5", "GPU-6"}))
    for members, words in (({"node-1": node}, "the node publishes this GPU"), ({}, "publishes no GPUs")):
        world = broken(pool=replace(POOL, members=members))
        world.one_pass()
        assert words in (world.job.status.cordoned_nodes[0].reason or "")


def test_a_job_without_gpus_cordons_nothing_however_often_its_pods_say_so() -> None:
    """Its values once made the pool a thousand nodes, and a hundred cordons an hour."""
    world = World(job=job(spec=spec(gpusPerNode=0)), may_cordon=True, pool=Pool(size=1000, schedulable=1000))
    for _ in range(20):
        world.running()
        world.end(1, 80, xid=79)
        assert cordons(world.one_pass()) == []
        world.kubelets()
        world.now += timedelta(seconds=400)
        world.settle()
        if world.job.status.completion_time:
            world = World(job=job(spec=spec(gpusPerNode=0)), may_cordon=True, pool=world.pool)
    assert world.fleet.effects == []
    assert not any(node.strikes for node in world.nodes.values())


def test_what_a_job_calls_a_gpu_does_not_make_it_one() -> None:
    assert "none of the resources that are GPUs" in refused(broken(pod={"gpuResource": "example.com/pods"}))


def test_a_node_that_was_made_after_the_pod_got_its_place_is_another_one() -> None:
    node = PoolNode(uid="uid-of-node-1", made=START + timedelta(hours=1), resources=GPUS)
    world = broken(pool=replace(POOL, members={"node-1": node}))
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], placed_at=START + timedelta(minutes=1))
    assert "another node had its name" in refused(world)


def test_an_operator_that_only_tells_needs_no_right_and_latches_no_breaker() -> None:
    crowded = replace(POOL, ours=(RECENT, replace(RECENT, node="third")))
    for pool, words in ((POOL, "would be cordoned"), (crowded, "would not be cordoned: 2 nodes")):
        world = World(job=job(), may_cordon=False, pool=pool)
        world.defaults = replace(world.defaults, cordon_dry_run=True)
        plan = broken(world=world).one_pass()
        assert not [action for action in plan.actions if isinstance(action, CordonNode | LatchBreaker)]
        assert words in next(event.message for event in plan.events if event.reason == "CordonDryRun")
        assert world.job.status.cordoned_nodes == ()


def test_what_stands_on_the_node_holds_facts_and_none_of_a_reports_prose() -> None:
    world = World(job=job(), may_cordon=True, pool=POOL)
    world.running()
    world.end(1, 80, xid=79)
    ending = world.pods["flux-1-1"].ending
    assert ending is not None
    assert ending.report is not None
    leaky = replace(ending.report, summary="ValueError: token hf_abcdef of https://user:secret@example.com")
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], ending=replace(ending, report=leaky))
    action = next(action for action in world.one_pass().actions if isinstance(action, CordonNode))
    assert "hf_abcdef" not in action.reason
    assert action.reason.startswith("GPUFault in attempt 1: pod flux-1-1 on node-1: GPU 5 (GPU-5, serial 165) XID 79")
    assert action.gpu is not None
    assert (action.gpu.uuid, action.gpu.serial) == ("GPU-5", "165")
