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
from oarlock_operator.kube.api_error import ApiError, Conflict
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

LEDGER = "/api/v1/namespaces/oarlock/configmaps/oarlock-cordons"


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
        pool=PoolReader(cluster=api, brakes=Brakes(namespace="oarlock")),
        spares=SpareReader(api),
        throttle=Throttle(4),
        events=EventPoster(api, instance="test"),
    )


class Pass:
    """A pass over a job whose node is to be cordoned. `done`: actions, and whether others wait in line meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World(job=job(), may_cordon=True, pool=Pool(size=20, schedulable=20))
        world.running()
        world.end(1, 80, xid=79)
        world.end(0, 82)  # so that this very pass also makes the next gang
        self.api = MemoryApi()
        self.path = f"{job_path('default', 'flux')}/status"
        self.raw = self.api.put(self.path, status={})
        self.raw["metadata"] |= {"name": "flux", "namespace": "default", "uid": world.job.uid}
        for number in range(20):
            status = {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
            self.api.put(f"/api/v1/nodes/node-{number}", spec={}, status=status)
        self.reconciler = reconciler(self.api, world)
        self.done: list[tuple[str, bool]] = []

        async def observed(*_: Any, **__: Any) -> Any:
            return world.observe(), self.raw

        async def executed(_cluster: Any, _job: Job, actions: Sequence[Action], **_: Any) -> None:
            self.done.extend((type(action).__name__, self.reconciler.cordoning.locked()) for action in actions)

        monkeypatch.setattr(reconcile, "observe", observed)
        monkeypatch.setattr(reconcile, "execute", executed)

    async def run(self) -> set[str]:
        """What is done."""
        await self.reconciler.reconcile(("default", "flux"), waited=0.0)
        return {name for name, _ in self.done}


async def test_the_line_of_cordons_ends_before_the_gang_is_torn_down_and_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Pass(monkeypatch)
    await one.run()
    within = {name for name, locked in one.done if locked}
    assert within == {"CordonNode"}
    assert {"CreatePods"} <= {name for name, locked in one.done if not locked}
    assert "CordonNode" not in {name for name, locked in one.done if not locked}, "and it is done once"
    writes = [path for verb, path in one.api.requests if verb not in ("GET", "LIST")]
    assert writes[:2] == [LEDGER, one.path], "before the status tells of it, it is entered"


async def test_where_the_ledger_may_not_be_written_the_gang_goes_on_and_nothing_is_cordoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Pass(monkeypatch)

    async def refuse(verb: str, path: str) -> None:
        if verb == "POST" and path == LEDGER:
            raise ApiError(403, "Forbidden", "no such right")

    one.api.before = refuse
    done = await one.run()
    assert "CreatePods" in done
    assert "CordonNode" not in done
    written = one.api.objects[one.path]["status"]
    assert not written.get("cordonedNodes")
    assert [node["name"] for node in written["avoidedNodes"]] == ["node-1"]


async def test_where_the_ledger_cannot_be_written_for_a_while_the_gang_goes_on_and_the_cordon_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Pass(monkeypatch)

    async def down(verb: str, path: str) -> None:
        if verb == "POST" and path == LEDGER:
            raise ApiError(500, "InternalError", 'failed calling webhook "policy.example.com": no endpoints available')

    one.api.before = down
    assert {"CreatePods", "CordonNode"} <= await one.run()
    (entry,) = one.api.objects[one.path]["status"]["cordonedNodes"]
    assert (entry["name"], "doneTime" in entry) == ("node-1", False)


async def test_a_decision_by_a_ledger_that_somebody_else_has_written_since_is_taken_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Pass(monkeypatch)

    async def faster(verb: str, path: str) -> None:
        if verb == "POST" and path == LEDGER:
            one.api.put(LEDGER)

    one.api.before = faster
    with pytest.raises(Conflict):
        await one.run()
    assert one.done == []
    assert one.api.objects[one.path]["status"] == {}
    await one.run()
    assert ("CordonNode", True) in one.done
