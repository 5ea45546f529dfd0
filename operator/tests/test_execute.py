"""Actions can be repeated, name what they are about, and are all tried before one that failed is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from jobs import job, spec
from memory_api import MemoryApi
from virtual_time import in_virtual_time

from oarlock_operator.execute import execute
from oarlock_operator.kube.api_error import ApiError, Conflict
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.manifests.pod import pod
from oarlock_operator.manifests.service import selector, service
from oarlock_operator.model.observed_nodes import Brakes
from oarlock_operator.model.plan import (
    Action,
    CordonNode,
    CreatePods,
    CreateService,
    DeletePods,
    LatchBreaker,
    SelectAttempt,
)
from oarlock_operator.nodes.pool import PoolReader

PODS = "/api/v1/namespaces/default/pods"
SERVICE = "/api/v1/namespaces/default/services/flux"
JOB, SPEC = job(), spec(nodes=8)
ALL_PODS = CreatePods(tuple(pod(JOB, SPEC, attempt=1, rank=rank, image="i") for rank in range(8)))
START: tuple[Action, ...] = (CreateService(service(JOB, 1)), ALL_PODS)


def pool_of(api: MemoryApi) -> PoolReader:
    return PoolReader(cluster=api, brakes=Brakes(namespace="oarlock"))  # type: ignore[arg-type]


async def run(api: MemoryApi, *actions: Action, parallel: int = 4, pool: PoolReader | None = None) -> None:
    await execute(api, JOB, actions, throttle=Throttle(parallel), pool=pool or pool_of(api))  # type: ignore[arg-type]


async def test_a_start_makes_all_objects_in_the_plan_s_order() -> None:
    api = MemoryApi()
    await run(api, *START)
    kinds = [path.split("/")[5] for verb, path in api.requests if verb == "POST"]
    assert kinds == ["services", *["pods"] * 8]


async def test_doing_it_again_changes_nothing() -> None:
    api = MemoryApi()
    await run(api, *START)
    before = {path: body["metadata"]["uid"] for path, body in api.objects.items()}
    await run(api, *START)
    assert {path: body["metadata"]["uid"] for path, body in api.objects.items()} == before


async def test_a_start_that_was_cut_off_is_completed() -> None:
    api = MemoryApi()
    await run(api, *START)
    del api.objects[f"{PODS}/flux-1-3"], api.objects[SERVICE]
    await run(api, *START)
    assert len(api.objects) == 9


@pytest.mark.parametrize("taken", [f"{PODS}/flux-1-5", SERVICE], ids=["pod", "Service"])
@pytest.mark.parametrize("owners", [None, [], [{"uid": "uid-of-another"}]], ids=["absent", "none", "another"])
async def test_a_name_that_somebody_else_holds_is_told_and_left_alone(taken: str, owners: object) -> None:
    api = MemoryApi()
    api.put(taken)
    if owners is not None:
        api.objects[taken]["metadata"]["ownerReferences"] = owners
    before = dict(api.objects[taken]["metadata"])
    with pytest.raises(ApiError, match="belongs to somebody else") as refusal:
        await run(api, *START)
    assert refusal.value.reason == "NameTaken"
    assert not isinstance(refusal.value, Conflict), "looking again would not help"
    assert api.objects[taken]["metadata"] == before


async def test_pods_that_the_gang_does_without_hold_nobody_up_where_the_server_does_not_take_them() -> None:
    api = MemoryApi()

    async def quota(verb: str, path: str) -> None:
        if verb == "POST" and path.endswith("flux-1-6"):
            raise ApiError(403, "Forbidden", "exceeded quota")

    api.before = quota
    spares = CreatePods(ALL_PODS.manifests[6:], optional=True)
    await run(api, spares, DeletePods((("flux-1-5", "uid"),), grace_seconds=5))
    assert set(api.objects) == {f"{PODS}/flux-1-7"}
    assert [verb for verb, _ in api.requests][-1] == "DELETE", "what comes after them is done"
    with pytest.raises(ApiError, match="quota"):
        await run(api, CreatePods(ALL_PODS.manifests[6:]))


async def test_deleting_names_the_grace_period_and_spares_an_object_of_the_same_name() -> None:
    api = MemoryApi()
    await run(api, *START)
    uid = api.objects[f"{PODS}/flux-1-0"]["metadata"]["uid"]
    pods = (("flux-1-0", uid), ("flux-1-1", "uid-of-its-predecessor"), ("flux-1-77", "gone"))
    await run(api, DeletePods(pods, grace_seconds=5))
    assert f"{PODS}/flux-1-0" not in api.objects
    assert f"{PODS}/flux-1-1" in api.objects
    assert {path.partition("?")[2] for verb, path in api.requests if verb == "DELETE"} == {"grace=5"}


async def test_selecting_an_attempt_changes_the_very_service_that_was_seen() -> None:
    api = MemoryApi()
    await run(api, *START)
    uid = api.objects[SERVICE]["metadata"]["uid"]
    await run(api, SelectAttempt("flux", uid, selector(JOB, 2)))
    assert api.objects[SERVICE]["spec"]["selector"]["oarlock.dev/attempt"] == "2"
    await run(api, SelectAttempt("flux", uid, selector(JOB, 2, 5)))
    assert api.objects[SERVICE]["spec"]["selector"]["oarlock.dev/incarnation"] == "5"
    await run(api, SelectAttempt("flux", uid, selector(JOB, 2)))
    assert not api.objects[SERVICE]["spec"]["selector"].get("oarlock.dev/incarnation"), "no first pod has that label"
    with pytest.raises(Conflict):
        await run(api, SelectAttempt("flux", "uid-of-its-predecessor", selector(JOB, 3)))
    assert api.objects[SERVICE]["spec"]["selector"]["oarlock.dev/attempt"] == "2"


@pytest.mark.parametrize("parallel", [1, 3, 100])
def test_no_more_requests_run_at_once_than_the_setting_allows(parallel: int) -> None:
    @in_virtual_time
    async def scenario() -> None:
        api, running, most = MemoryApi(), 0, 0

        async def slow(_verb: str, _path: str) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1

        api.before = slow
        await run(api, ALL_PODS, parallel=parallel)
        assert most == min(parallel, 8)

    scenario()


async def test_all_pods_are_tried_and_then_the_first_error_is_raised_and_what_follows_is_not_done() -> None:
    api = MemoryApi()

    async def refuse(verb: str, path: str) -> None:
        if verb == "POST" and path.endswith(("-2", "-5")):
            raise ApiError(403, "Forbidden", f"exceeded quota: {path}")

    api.before = refuse
    with pytest.raises(ApiError, match="flux-1-2"):
        await run(api, ALL_PODS, START[0])
    assert api.names() == [f"flux-1-{rank}" for rank in (0, 1, 3, 4, 6, 7)]
    assert SERVICE not in api.objects


async def test_a_node_that_cannot_be_cordoned_keeps_no_gang_from_starting() -> None:
    api = MemoryApi()
    node = api.put("/api/v1/nodes/n1", spec={})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    cordon = CordonNode("n1", node["metadata"]["uid"], 1, "GPUFault in attempt 1", now, now)

    async def refuse(verb: str, path: str) -> None:
        if verb in ("PATCH", "GET") or path.endswith("breaker"):
            raise ApiError(403, "Forbidden", "a webhook guards nodes")

    api.before = refuse
    await run(api, cordon, LatchBreaker("why"), *START)
    assert "flux-1-7" in api.names()


async def test_only_what_a_job_needs_is_told_to_its_owner() -> None:
    api = MemoryApi()
    api.put(SERVICE)
    with pytest.raises(ApiError) as taken:
        await run(api, START[0])
    assert taken.value.creating

    async def refuse(verb: str, _path: str) -> None:
        if verb == "DELETE":
            raise ApiError(403, "Forbidden", "no")

    api.before = refuse
    with pytest.raises(ApiError) as kept:
        await run(api, DeletePods((("flux-1-0", "uid"),)))
    assert not kept.value.creating


async def test_a_name_that_was_taken_and_is_free_again_is_an_error_for_the_next_pass() -> None:
    api = MemoryApi()
    api.put(SERVICE)

    async def vanish(verb: str, _path: str) -> None:
        if verb == "GET":
            del api.objects[SERVICE]

    api.before = vanish
    with pytest.raises(Conflict):
        await run(api, START[0])
