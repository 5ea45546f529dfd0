"""What is written on nodes: to the very node that was meant, once, and never against a person."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jobs import job
from memory_api import Json, MemoryApi
from structlog.testing import capture_logs

from oarlock_api.contract.node_marks import CORDONED, ENDED
from oarlock_api.history import FaultGPU
from oarlock_local import patience
from oarlock_operator.execute import execute
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.cordon_marks import last_mark
from oarlock_operator.model.observation import Key
from oarlock_operator.model.observed_nodes import Brakes, CordonMark, NodeStrike
from oarlock_operator.model.plan import Action, CordonNode, LatchBreaker, NoteStrike
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.troubled import remove_mark
from oarlock_operator.process.workers import work_on_nodes
from oarlock_operator.process.workqueue import WorkQueue

NODE = "/api/v1/nodes/n1"
BREAKER = "/api/v1/namespaces/oarlock/configmaps/oarlock-cordon-breaker"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = FaultGPU(index=5, uuid="GPU-5", serial="165")
CORDON = CordonNode("n1", f"other-{NODE}", 1, "GPUFault in attempt 1", NOW, NOW, GPU)
LATER = replace(CORDON, at=NOW + timedelta(minutes=5))


def pool_of(api: MemoryApi) -> PoolReader:
    return PoolReader(cluster=api, brakes=Brakes(namespace="oarlock"))  # type: ignore[arg-type]


async def run(api: MemoryApi, *actions: Action, pool: PoolReader | None = None) -> None:
    pool = pool or pool_of(api)
    assert not await pool.enter(job(), actions, await pool.read())
    await execute(api, job(), actions, throttle=Throttle(4), pool=pool)  # type: ignore[arg-type]


def there() -> MemoryApi:
    api = MemoryApi()
    api.put(NODE, spec={})
    return api


def cordoned(api: MemoryApi) -> bool:
    return bool(api.objects[NODE]["spec"].get("unschedulable"))


def marks(api: MemoryApi) -> Json:
    found: Json = api.objects[NODE]["metadata"].get("annotations", {})
    return found


async def refuse(_verb: str, _path: str) -> None:
    raise ApiError(403, "Forbidden", "a webhook guards nodes")


async def test_a_cordon_says_on_the_node_who_wanted_it_and_why() -> None:
    api = there()
    events = EventPoster(api, instance="test")  # type: ignore[arg-type]
    await run(api, CORDON, pool=replace(pool_of(api), events=events))
    assert cordoned(api)
    assert last_mark("n1", marks(api)) == CordonMark("n1", "default/flux", NOW, NOW)
    written = json.loads(marks(api)[CORDONED])
    assert written["gpu"] == {"index": 5, "uuid": "GPU-5", "serial": "165"}
    assert "GPUFault" in written["reason"]
    assert written["giveBack"] == "kubectl uncordon n1"
    await events.flush()
    (event,) = [body for path, body in api.objects.items() if path.startswith("/api/v1/namespaces/default/events/")]
    assert (event["involvedObject"]["kind"], event["reason"]) == ("Node", "NodeCordoned")
    assert event["message"].startswith("cordoned by Oarlock for default/flux")


async def test_a_cordon_that_is_repeated_leaves_the_last_word_to_whoever_uncordons_also_after_a_restart() -> None:
    api = there()
    await run(api, CORDON)
    api.objects[NODE]["spec"] = {}
    await run(api, LATER)
    assert not cordoned(api)
    await remove_mark(api, "n1")  # type: ignore[arg-type]
    assert set(marks(api)) == {ENDED}, "what it said is kept"
    await run(api, LATER)
    assert not cordoned(api)
    other = replace(CORDON, time=NOW + timedelta(hours=2), at=NOW + timedelta(hours=2))
    await run(api, other)
    assert cordoned(api), "another fault is another cordon"
    assert set(marks(api)) == {CORDONED}


async def test_another_machine_of_the_same_name_is_left_alone() -> None:
    api = there()
    api.objects[NODE]["metadata"]["uid"] = "made-since"
    await run(api, CORDON)
    assert not cordoned(api)
    assert marks(api) == {}


async def test_a_breaker_that_was_latched_since_the_decision_holds_it_back() -> None:
    api = there()
    await run(api, LatchBreaker("a person said stop"), CORDON)
    assert not cordoned(api)
    del api.objects[BREAKER]
    await run(api, LATER)
    assert cordoned(api)


async def test_what_is_written_on_nodes_is_logged_when_it_is_written_not_when_it_is_repeated_or_fails() -> None:
    api, broken = there(), there()
    broken.before = refuse
    once = (CORDON, NoteStrike("n1", NodeStrike("GPU-5", NOW, "uid-1", 94)), LatchBreaker("why"))
    with capture_logs() as said:
        for pool in (pool_of(api), pool_of(api)):
            # The second one is that of an operator that was started anew.
            for _ in range(2):
                await run(api, *once, pool=pool)
        await run(broken, *once)
    assert [line["action"] for line in said if line["event"] == "done"] == ["CordonNode", "NoteStrike", "LatchBreaker"]
    assert [line["action"] for line in said if line["event"] == "not done"] == [type(one).__name__ for one in once]


async def test_a_cordon_that_the_server_does_not_take_is_told_in_its_words() -> None:
    api, broken = there(), there()
    broken.before = refuse
    events = EventPoster(api, instance="test")  # type: ignore[arg-type]
    await run(broken, CORDON, pool=replace(pool_of(broken), events=events))
    await events.flush()
    (event,) = [body for path, body in api.objects.items() if "/events/" in path]
    assert (event["involvedObject"]["name"], event["reason"]) == ("flux", "CordonFailed")
    assert "a webhook guards nodes" in event["message"]


async def test_somebody_elses_cordon_stays_theirs_and_a_node_that_is_gone_needs_none() -> None:
    api = MemoryApi()
    api.put(NODE, spec={"unschedulable": True})
    await run(api, CORDON, replace(CORDON, node="gone"))
    assert marks(api) == {}


async def test_the_breaker_is_latched_once_with_its_first_reason() -> None:
    api = MemoryApi()
    await run(api, LatchBreaker("first"), LatchBreaker("second"))
    assert api.objects[BREAKER]["data"] == {"reason": "first"}


def gpu_node(**more: Any) -> Json:
    status = {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"spec": {}, "status": status, **more}


async def test_the_pool_is_the_nodes_with_gpus() -> None:
    api = MemoryApi()
    for name in ("n1", "n2", "n3"):
        api.put(f"/api/v1/nodes/{name}", **gpu_node())
    api.objects["/api/v1/nodes/n3"]["metadata"]["annotations"] = {"oarlock.dev/gpus": "GPU-1, GPU-2"}
    api.put("/api/v1/nodes/cpu", spec={}, status={"capacity": {"cpu": "64", "pods": "110", "nvidia.com/gpu": "0"}})
    pool = pool_of(api)
    await run(api, CORDON, pool=pool)
    found = await pool.read()
    assert (found.size, found.schedulable, found.unschedulable) == (3, 2, {"n1"})
    assert [mark.job for mark in found.ours] == ["default/flux"]
    assert found.members["n3"].gpus == {"GPU-1", "GPU-2"}


async def test_a_pool_that_may_not_be_read_is_no_reason_not_to_recover() -> None:
    api = MemoryApi()
    api.before = refuse
    found = await pool_of(api).read()
    assert "a webhook guards nodes" in found.unreadable

    async def busy(_verb: str, _path: str) -> None:
        raise ApiError(503, "Unavailable", "try again")

    api.before = busy
    with pytest.raises(ApiError):
        await pool_of(api).read()


async def test_a_mark_that_cannot_be_removed_keeps_nobody_from_looking_at_the_jobs_of_its_node() -> None:
    api = MemoryApi()
    api.put(NODE, spec={})
    api.objects[NODE]["metadata"]["annotations"] = {CORDONED: "{}"}
    labels = {"oarlock.dev/job": "flux"}
    api.objects["/api/v1/pods/flux-1-0"] = {"metadata": {"namespace": "default", "name": "flux-1-0", "labels": labels}}

    async def guarded(verb: str, path: str) -> None:
        if verb == "PATCH":
            await refuse(verb, path)

    api.before = guarded
    jobs: WorkQueue[Key] = WorkQueue(clock=lambda: 0.0)
    nodes: WorkQueue[str] = WorkQueue(clock=lambda: 0.0)
    nodes.add("n1")
    task = asyncio.create_task(work_on_nodes(nodes, jobs, api, may_patch=True))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(patience.SECONDS):
            assert (await jobs.get())[0] == ("default", "flux")
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
