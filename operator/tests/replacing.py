"""A gang whose lost pods are made anew one by one, for tests of what the operator decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from jobs import job, spec
from worlds import World

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import LostPod
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.model.plan import Event, Plan

NODES = 4
KEYED = Defaults(trainer_image="trainer:test", keys=(b"k" * 32,))


def gang(*, nodes: int = NODES, changes: dict[str, Any] | None = None, **recovery: object) -> World:
    """A gang that trains, whose lost pods are made anew one by one."""
    world = World(job=job(spec=spec(nodes=nodes, recovery={"inPlace": "Auto", **recovery}, **(changes or {}))))
    world.defaults = KEYED
    world.running(step=20)
    return world


def kill(world: World, rank: int = 2) -> None:
    """The pod is killed with its agent: it says nothing."""
    world.end(rank, 137, with_report=False)


def cut_off(world: World, rank: int = 2, *, unreachable: bool = True) -> str:
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


def missed(world: World, *ranks: int, code: int = 82, ago: float = 0.0) -> None:
    """The leader has lost these pods, and tells since when by its own clock."""
    world.step(20)
    since = (world.now - timedelta(seconds=ago)).isoformat()
    lost = tuple(LostPod(rank=rank, incarnation=1, code=code, why="silent for 5 s", lost_at=since) for rank in ranks)
    assert world.progress is not None
    world.progress = replace(world.progress, lost=lost, figures=Figures())


def ended_by_a_rank(world: World) -> list[Any]:
    world.end_round(1, step=16, resumed_step=15)
    return world.ended[1][-1:]


def lost_before(world: World) -> None:
    counts = world.job.status.restarts.model_copy(update={"application": 1})
    world.job = replace(world.job, status=world.job.status.model_copy(update={"restarts": counts}))
