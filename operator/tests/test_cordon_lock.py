"""Cordons are decided one at a time, and nothing else waits in that line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from jobs import job
from memory_api import MemoryApi
from worlds import World

from oarlock_operator import reconcile
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.job_paths import job_path
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Job
from oarlock_operator.model.observed_nodes import Brakes, Pool
from oarlock_operator.model.plan import Action
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.spares import SpareReader
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources
from oarlock_operator.observe.progress import ProgressReader, Route


def reconciler(api: Any, world: World) -> reconcile.Reconciler:
    return reconcile.Reconciler(
        sources=Sources(
            cluster=api,
            progress=ProgressReader(api, Route.DIRECT, clock=time.monotonic),
            gangs=GangReader(api),
            clock=lambda: world.now,
        ),
        memory=Memory(),
        defaults=replace(world.defaults, may_cordon=True),
        pool=PoolReader(cluster=api, namespace="oarlock", brakes=Brakes()),
        spares=SpareReader(api),
        throttle=Throttle(4),
        events=EventPoster(api, instance="test"),
    )


async def test_the_line_of_cordons_ends_before_the_gang_is_torn_down_and_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(job=job(), may_cordon=True, pool=Pool(size=20, schedulable=20))
    world.running()
    world.end(1, 80, xid=79)
    world.end(0, 82)  # so that this very pass also makes the next gang
    api = MemoryApi()
    path = job_path("default", "flux")
    raw = api.put(f"{path}/status", status={})
    raw["metadata"] |= {"name": "flux", "namespace": "default", "uid": world.job.uid}
    for number in range(20):
        status = {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
        api.put(f"/api/v1/nodes/node-{number}", spec={}, status=status)
    ours = reconciler(api, world)
    done: list[tuple[str, bool]] = []

    async def observed(*_: Any, **__: Any) -> Any:
        return world.observe(), raw

    async def executed(_cluster: Any, _job: Job, actions: Sequence[Action], **_: Any) -> None:
        done.extend((type(action).__name__, ours.cordoning.locked()) for action in actions)

    monkeypatch.setattr(reconcile, "observe", observed)
    monkeypatch.setattr(reconcile, "execute", executed)
    await ours.reconcile(("default", "flux"), waited=0.0)
    within = {name for name, locked in done if locked}
    assert within == {"CordonNode"}
    assert {"CreatePods"} <= {name for name, locked in done if not locked}
    assert "CordonNode" not in {name for name, locked in done if not locked}, "and it is done once"
