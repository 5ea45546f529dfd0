"""Where no node is free for rank 0's next pod, a pod that the gang can do without leaves its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jobs import job, spec
from worlds import World

from oarlock_api.history import AvoidedNode
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import CreatePods, DeletePods, Plan

NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def lost_leader(*, nodes: int = 2, spares: int = 0, least: int | None = None, ranks: tuple[int, ...] = (0,)) -> World:
    """A gang whose pods of these ranks are lost with their nodes, and for whose next pods no node is free."""
    changes: dict[str, Any] = {"nodes": nodes, "spares": spares}
    if least:
        training = spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 12}
        changes |= {"elastic": {"minNodes": least, "patienceSeconds": 40}, "training": training}
    keyed = Defaults(trainer_image="trainer:test", keys=(b"k" * 32,))
    world = World(job=job(spec=spec(recovery={"inPlace": "Auto"}, **changes)), defaults=keyed)
    world.running(step=20)
    for node in [world.pod(rank).node for rank in ranks]:
        world.nodes[node] = Node(name=node, ready=False, unreachable=True, boot_id="1")
    world.progress = None
    world.settle()
    for rank in ranks:
        world.pods[world.pod(rank).name] = replace(world.pod(rank), obstacle=NO_ROOM)
    return world


def after(world: World, seconds: float) -> Plan:
    world.now += timedelta(seconds=seconds)
    return world.one_pass()


def replacing(world: World) -> dict[int, str | None]:
    return {one.rank: one.reason for one in world.job.status.recovery.replacing}


def deleted(plan: Plan) -> list[str]:
    return [name for action in plan.actions if isinstance(action, DeletePods) for name, _ in action.pods]


def made(plan: Plan) -> list[str]:
    return [pod["metadata"]["name"] for action in plan.actions if isinstance(action, CreatePods) for pod in action.pods]


def test_a_spare_goes_and_its_next_pod_is_made_once_rank_0_has_the_node() -> None:
    world = lost_leader(spares=1)
    assert "flux-1-2" not in deleted(after(world, 5)), "the scheduler may not have settled"
    plan = after(world, 6)
    assert "flux-1-2" in deleted(plan)
    assert replacing(world) == {0: "NodeLost", 2: "GaveWay"}
    assert [event.reason for event in plan.events] == ["GaveWay"]
    assert "no node is free for flux-1-0-i2: flux-1-2 leaves" in plan.events[0].message
    del world.pods["flux-1-2"]
    for _ in range(3):
        plan = after(world, 5)
        assert (made(plan), replacing(world).keys()) == ([], {0, 2}), "it would take the node itself"
    world.pods["flux-1-0-i2"] = replace(world.pod(0), scheduled=True, node="node-2", obstacle="")
    world.settle()
    assert [name for name in world.pods if name.startswith("flux-1-2-i")]
    counts = world.job.status.restarts
    assert (counts.application, counts.infrastructure, counts.voluntary) == (0, 1, 0)


def test_an_elastic_gang_that_may_be_smaller_goes_on_without_its_last_pod_after_its_patience() -> None:
    world = lost_leader(nodes=3, least=2)
    assert "flux-1-2" not in deleted(after(world, 39))
    assert "flux-1-2" in deleted(after(world, 2))
    assert replacing(world) == {0: "NodeLost", 2: "GaveWay"}
    del world.pods["flux-1-2"]
    for _ in range(3):
        plan = after(world, 5)
        assert (made(plan), deleted(plan)) == ([], []), "one node is enough for rank 0"


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        pytest.param({"nodes": 2}, (0,), id="all of its pods are needed"),
        pytest.param({"nodes": 3, "least": 2}, (0, 1), id="too few would be left"),
        pytest.param({"nodes": 2, "spares": 1}, (1,), id="a spare takes any other place itself"),
    ],
)
def test_nobody_goes_in_vain(options: dict[str, Any], ranks: tuple[int, ...]) -> None:
    world = lost_leader(**options, ranks=ranks)
    for _ in range(4):
        after(world, 15)
        assert replacing(world) == dict.fromkeys(ranks, "NodeLost")


def test_a_spare_on_a_node_that_does_not_take_rank_0_stays() -> None:
    world = lost_leader(spares=1)
    node = world.pod(2).node
    world.nodes[node] = Node(name=node, unschedulable=True, boot_id="1")
    assert "GaveWay" not in (after(world, 30) and replacing(world)).values()
    world.nodes.pop(node)
    avoided = {"avoided_nodes": (AvoidedNode(name=node),)}
    world.job = replace(world.job, status=world.job.status.model_copy(update=avoided))
    world.pods["flux-1-0-i2"] = replace(world.pod(0), keeps_off=frozenset({node}))
    assert "GaveWay" not in (after(world, 30) and replacing(world)).values()
    world.pods["flux-1-0-i2"] = replace(world.pod(0), keeps_off=frozenset())
    assert "GaveWay" in (after(world, 1) and replacing(world)).values()
