"""A storm: one step after the other, each chosen by the seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.chaos import on_jobs, on_nodes, on_pods
from tests.chaos.field import Field

Step = Callable[[Field], Awaitable[str]]


async def disturb(field: Field) -> str:
    """Kill, freeze or end an operator."""
    return field.operators.disturb()


async def restart_api_server(field: Field) -> str:
    """Kill the API server; it comes back, and every watch has broken meanwhile."""
    await asyncio.to_thread(field.cluster.fault, "restart-apiserver")
    return "restart the API server"


STEPS: list[tuple[float, Step]] = [
    *on_jobs.STEPS,
    *on_pods.STEPS,
    *on_nodes.STEPS,
    (3, disturb),
    (0.2, restart_api_server),
]
"""Each with its weight."""


class Storm:
    """Steps on a field, and how often each was taken."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.counts: Counter[str] = Counter()

    async def step(self) -> None:
        """One step, by chance."""
        weights, steps = zip(*STEPS, strict=True)
        (step,) = self.field.chance.choices(steps, weights)
        if done := await step(self.field):
            self.counts[step.__name__] += 1
            self.field.history.note(f"STEP {done}")
