"""A gang with spares, or one that may go on with fewer nodes, for tests of what the operator decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs import job, spec
from replacing import KEYED
from worlds import World

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import LostPod

NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def gang(*, nodes: int = 2, spares: int = 0, least: int | None = None, **recovery: object) -> World:
    """A gang that trains, with spares, or one that may go on with fewer nodes."""
    changes: dict[str, Any] = {"nodes": nodes, "spares": spares}
    if least:
        training = spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 12}
        changes |= {"elastic": {"minNodes": least}, "training": training}
    world = World(job=job(spec=spec(recovery={"inPlace": "Auto", **recovery}, **changes)), defaults=KEYED)
    world.running(step=20)
    return world


def tells(world: World, *members: int, round_: int, step: int | None = 16, lost: tuple[int, ...] = ()) -> None:
    """Rank 0's agent: in which round it is, with whom, and whom it waits for."""
    world.step(step or 0)
    assert world.progress is not None
    world.progress = replace(
        world.progress,
        round=round_,
        members=members,
        lost=tuple(LostPod(rank=rank, incarnation=1, code=82, why="silent for 5 s") for rank in lost),
        **({} if step is not None else {"figures": Figures()}),
    )


def start(world: World, rank: int) -> None:
    """The new pod has found a node, and its container runs."""
    pod = world.pod(rank)
    world.pods[pod.name] = replace(
        pod, node=f"node-{rank}{rank}", scheduled=True, started=True, ready=True, obstacle=""
    )


def charges(world: World) -> tuple[int, int, int]:
    counts = world.job.status.restarts
    return counts.application, counts.infrastructure, counts.voluntary


def book(world: World, *, rank: int, **known: Any) -> None:
    """The leader's word for the end of a round, told with the next one's."""
    world.end_round(82, rank=rank, why="silent for 5 s", step=20, resumed_step=15, lost_pod=True, **known)


def booked(world: World) -> list[tuple[int, str, int | None, int | None]]:
    return [(one.round, one.rung, one.rank, one.node_count) for one in world.job.status.rounds]


def degraded(world: World) -> tuple[str, str]:
    (found,) = [one for one in world.job.status.conditions if one.type == "Degraded"]
    return found.reason, found.message
