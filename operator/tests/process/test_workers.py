"""Workers: news of nodes reach the jobs there, however many nodes have news at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from memory_api import Json, MemoryApi
from virtual_time import in_virtual_time, now

from oarlock_operator.kube.decoding import Page
from oarlock_operator.model.observation import Key
from oarlock_operator.process.workers import NODE_WORKERS, work_on_nodes
from oarlock_operator.process.workqueue import WorkQueue


class Nodes(MemoryApi):
    """Each node has a pod of a job that is called as the node; each answer takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self.asking = self.most = 0

    async def pages_of(self, kind: Any, path: str, *, metadata_only: bool, **query: str) -> AsyncIterator[Page[Any]]:
        assert (path, metadata_only) == ("/api/v1/pods", True)
        self.asking += 1
        self.most = max(self.most, self.asking)
        await asyncio.sleep(1)
        self.asking -= 1
        name = query["fieldSelector"].removeprefix("spec.nodeName=")
        raw: Json = {"metadata": {"namespace": "ns", "labels": {"oarlock.dev/job": name}}}
        yield Page(items=(msgspec.convert(raw, kind),))


async def jobs_of(api: Nodes, names: list[str]) -> dict[str, float]:
    """When the job on each of the nodes was looked at."""
    nodes: WorkQueue[str] = WorkQueue(clock=now)
    jobs: WorkQueue[Key] = WorkQueue(clock=now)
    for name in names:
        nodes.add(name)
    working = [
        asyncio.create_task(work_on_nodes(nodes, jobs, api, may_patch=False))  # type: ignore[arg-type]
        for _ in range(NODE_WORKERS)
    ]
    seen: dict[str, float] = {}
    while len(seen) < len(names):
        key, _ = await jobs.get()
        jobs.done(key)
        seen.setdefault(key[1], now())
    for task in working:
        task.cancel()
    return seen


@in_virtual_time
async def test_of_a_lost_zone_s_nodes_several_are_looked_into_at_once_and_no_more_than_are_allowed() -> None:
    api = Nodes()
    seen = await jobs_of(api, [f"n{number}" for number in range(400)])
    assert max(seen.values()) == 400 / NODE_WORKERS
    assert api.most == NODE_WORKERS
