"""Worlds with gang systems, and what those do to pods and groups."""

from __future__ import annotations

from dataclasses import replace

from jobs import job, spec
from worlds import World

from oarlock_api.scheduling import Gang
from oarlock_operator.model.observation import GangSystems

VOLCANO = GangSystems(apis={Gang.VOLCANO: "scheduling.volcano.sh/v1beta1"})
KUEUE = GangSystems(apis={Gang.KUEUE: "kueue.x-k8s.io/v1beta2"})
COSCHEDULING = GangSystems(apis={Gang.COSCHEDULING: "scheduling.x-k8s.io/v1alpha1"})
KAI = GangSystems(apis={Gang.KAI: "scheduling.run.ai/v2alpha2"})
NATIVE = GangSystems(apis={Gang.NATIVE: "scheduling.k8s.io/v1beta1"})


def queued(**changes: object) -> World:
    """A job in a Kueue queue whose pods are gated."""
    wanted = spec(scheduling={"queue": "team", "placementTimeoutSeconds": 60}, **changes)
    world = World(job=job(spec=wanted), systems=KUEUE)
    world.settle()
    gate(world, gated=True)
    world.settle()
    return world


def gate(world: World, *, gated: bool) -> None:
    """What Kueue does to the pods of the current attempt."""
    for name, pod in world.pods.items():
        if pod.attempt == world.job.status.attempt:
            words = "Scheduling is blocked due to non-empty scheduling gates" if gated else ""
            world.pods[name] = replace(pod, gated=gated, grouped=True, obstacle=words)


def hold(world: World, words: str) -> None:
    """What Volcano or KAI says of the current attempt's group; empty where it lets it in."""
    number = world.job.status.attempt
    world.groups[number] = replace(world.groups[number], waits=words)


def stages(world: World, attempt: int = 1) -> dict[str, int | None]:
    record = next(a for a in world.job.status.attempts if a.number == attempt)
    return record.stage_milliseconds.model_dump()


def end_all(world: World, code: int) -> None:
    """Every rank that may still run ends."""
    for pod in list(world.pods.values()):
        if pod.attempt == world.job.status.attempt and not pod.stopped:
            world.end(pod.rank, code)
