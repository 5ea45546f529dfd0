"""What is done to gangs, and when it is over: start, restart, one pod made anew, delete, many at once, a lost node.

Times run from just before the request to the event on our own watch. Costs are taken until a second after the last event.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from connection import CORE, JOBS, MERGE, Connection, Json, RefusedError, until
from contenders import Contender
from fake_nodes import FakeNodes
from measuring import Measuring, Record
from pod_watch import Life, PodWatch

NODE_PATIENCE = 60.0
"""Seconds after which a lost node counts as not noticed. Kubernetes' own clearing up takes 40 to 60 s."""
Times = dict[str, float]


@dataclass(frozen=True, slots=True)
class Jobs:
    """Some jobs of one size, of one contender."""

    names: tuple[str, ...]
    nodes: int

    @classmethod
    def of(cls, prefix: str, count: int, nodes: int) -> Jobs:
        """`count` jobs of `nodes` nodes."""
        return cls(tuple(f"{prefix}-{number}" for number in range(count)), nodes)

    @property
    def pods(self) -> int:
        """Pods of all of them."""
        return len(self.names) * self.nodes

    @property
    def size(self) -> str:
        """For people."""
        return str(self.nodes) if len(self.names) == 1 else f"{len(self.names)} x {self.nodes}"


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Everything that can be done, on one cluster."""

    api: Connection
    watch: PodWatch
    measuring: Measuring
    nodes: FakeNodes
    chance: random.Random

    async def start(self, contender: Contender, jobs: Jobs) -> Record:
        """Ask for all jobs at once; over when all their pods run."""
        submitted: Times = {}

        async def act() -> None:
            began = time.monotonic()
            await asyncio.gather(*(contender.submit(name, jobs.nodes) for name in jobs.names))
            submitted["submitted"] = time.monotonic() - began

        def over(began: float) -> Times | None:
            lives = self.watch.of(jobs.names)
            if len(lives) < jobs.pods or any(life.running is None for life in lives):
                return None
            return {**submitted, "created": _last(lives, "created") - began, "running": _last(lives, "running") - began}

        return await self.measuring.measure(contender, "start", jobs.size, act, over)

    async def restart(self, contender: Contender, jobs: Jobs) -> Record:
        """One pod's trainer exits with 1; over when a whole new gang runs and nothing is left of the old one."""
        (name,) = jobs.names
        old = {life.name: life for life in self.watch.of(jobs.names)}
        victim = self.chance.choice(list(old.values()))

        async def act() -> None:
            await self._fail(victim)

        def over(began: float) -> Times | None:
            new = [life for life in self.watch.of([name]) if life.name not in old]
            gone = [life.gone for life in old.values() if life.gone is not None]
            if len(gone) < len(old) or len(new) < jobs.pods or any(life.running is None for life in new):
                return None
            return {
                "first old gone": min(gone) - began,
                "last old gone": max(gone) - began,
                "created": max(_last(new, "created"), *gone) - began,
                "running": _last(new, "running") - began,
            }

        return await self.measuring.measure(contender, "restart", jobs.size, act, over)

    async def replace(self, contender: Contender, jobs: Jobs) -> Record:
        """One pod is killed with its agent; over when its replacement runs. All others stay."""
        (name,) = jobs.names
        await self._train(name)
        old = {life.name: life for life in self.watch.of(jobs.names)}
        victim = self.chance.choice(list(old.values()))

        async def act() -> None:
            await self._fail(victim, code=137)

        def over(began: float) -> Times | None:
            new = [life for life in self.watch.of([name]) if life.name not in old]
            if not new or any(life.running is None for life in new):
                return None
            if gone := [life.name for life in old.values() if life.gone is not None and life is not victim]:
                raise SystemExit(f"{len(gone)} pods of {name} are gone that were to stay")
            return {"created": _last(new, "created") - began, "running": _last(new, "running") - began}

        return await self.measuring.measure(contender, "replace", jobs.size, act, over)

    async def _train(self, job: str) -> None:
        """Write into the status that the gang has made its first step: there is no agent that would tell."""
        path = f"{JOBS}/{job}"

        async def has_started() -> bool:
            status = (await self.api.find(path)).get("status") or {}
            return bool((status.get("recovery") or {}).get("stage") == "FirstStep")

        await until(has_started)
        status = {"recovery": {"stage": None, "stageStartTime": None}, "reason": "Training"}
        await self.api.call("PATCH", f"{path}/status", {"status": status}, content=MERGE)

    async def delete(self, contender: Contender, jobs: Jobs, *, scenario: str = "delete") -> Record:
        """Ask for the end of all jobs; over when no pod is left."""

        async def act() -> None:
            await asyncio.gather(*(contender.delete(name) for name in jobs.names))

        def over(began: float) -> Times | None:
            lives = self.watch.of(jobs.names)
            return None if any(life.gone is None for life in lives) else {"gone": _last(lives, "gone") - began}

        return await self.measuring.measure(contender, scenario, jobs.size, act, over)

    async def lose_node(self, contender: Contender, jobs: Jobs, *, deleted: bool) -> Record:
        """A node of a running gang is deleted, or says that it is not Ready; over when the status tells a new attempt."""
        (name,) = jobs.names
        victim = self.chance.choice(self.watch.of(jobs.names))

        async def act() -> None:
            if deleted:
                await self.nodes.delete(victim.node)
            else:
                await self.nodes.set_ready(victim.node, ready=False)

        def over(began: float) -> Times | None:
            raised = self.watch.attempts.get(name, {}).get(2)
            if raised is not None:
                return {"attempt raised": raised - began}
            return {} if time.monotonic() - began > NODE_PATIENCE else None

        record = await self.measuring.measure(
            contender, "node deleted" if deleted else "node not ready", jobs.size, act, over
        )
        await contender.delete(name)
        await self._force(jobs)
        if deleted:
            await self.nodes.create(victim.node)
        else:
            await self.nodes.set_ready(victim.node, ready=True)
        return record

    async def _fail(self, victim: Life, *, code: int = 1) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {"exitCode": code, "reason": "Error", "message": "RuntimeError: measured", "finishedAt": now}
        container: Json = {"name": "trainer", "image": "example.test/trainer", "imageID": "", "ready": False}
        container |= {"restartCount": 0, "state": {"terminated": ended}}
        status = {
            "phase": "Failed",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [container],
        }
        await self.api.call("PATCH", f"{CORE}/pods/{victim.name}/status", {"status": status}, content=MERGE)

    async def _force(self, jobs: Jobs) -> None:
        """Wait for the end of the jobs' pods; those of a node that is no more have no kubelet that would end them."""
        while left := [life for life in self.watch.of(jobs.names) if life.gone is None]:
            for life in left:
                with suppress(RefusedError):
                    await self.api.call("DELETE", f"{CORE}/pods/{life.name}", {"gracePeriodSeconds": 0})
            await asyncio.sleep(0.5)


Act = Callable[[], Awaitable[None]]
Over = Callable[[float], "Times | None"]


def _last(lives: Sequence[Life], what: str) -> float:
    times: list[float] = [getattr(life, what) for life in lives]
    return max(times)
