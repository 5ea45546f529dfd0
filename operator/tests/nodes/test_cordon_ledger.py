"""The ledger of cordons: whatever becomes of nodes, jobs and operators, the brakes count what was done."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jobs import job
from memory_api import Json, MemoryApi

from oarlock_api.history import CordonedNode
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.execute import execute
from oarlock_operator.kube.api_error import ApiError, Conflict
from oarlock_operator.kube.job_paths import job_path
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observed_nodes import Brakes, CordonMark
from oarlock_operator.model.plan import CordonNode
from oarlock_operator.nodes.cordon_ledger import LIMIT, CordonLedger
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.troubled import remove_mark

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEDGER = "/api/v1/namespaces/oarlock/configmaps/oarlock-cordons"
BRAKES = Brakes(namespace="oarlock")
ENTRY = CordonMark("n1", "default/flux", NOW, uid="uid-1")


def with_node() -> MemoryApi:
    api = MemoryApi()
    make_node(api, "first")
    make_job(api, job().uid)
    return api


def make_job(api: MemoryApi, uid: str) -> None:
    """The job flux."""
    api.put(job_path("default", "flux"))
    api.objects[job_path("default", "flux")]["metadata"]["uid"] = uid


def make_node(api: MemoryApi, uid: str) -> None:
    """A machine under the name n1, and none other."""
    status = {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    api.put("/api/v1/nodes/n1", spec={}, status=status)
    api.objects["/api/v1/nodes/n1"]["metadata"]["uid"] = uid


def node(api: MemoryApi) -> Json:
    return api.objects["/api/v1/nodes/n1"]


def pool_of(api: MemoryApi, *, at: datetime = NOW) -> PoolReader:
    """An operator that has just started."""
    return PoolReader(cluster=api, brakes=BRAKES, clock=lambda: at)  # type: ignore[arg-type]


def ledger_of(api: MemoryApi) -> CordonLedger:
    return CordonLedger(cluster=api, brakes=BRAKES)  # type: ignore[arg-type]


async def cordon(api: MemoryApi, *, at: datetime = NOW, by: str = "flux") -> None:
    """What an operator does that has decided just now."""
    action = CordonNode("n1", node(api)["metadata"]["uid"], 1, "GPUFault in attempt 1", at, at)
    pool = pool_of(api, at=at)
    assert not await pool.enter(job(name=by), [action], await pool.read())
    assert await carried_out(api, action, by=by, at=at)


async def carried_out(api: MemoryApi, action: CordonNode, *, by: str = "flux", at: datetime = NOW) -> bool:
    """Whether the node is cordoned once this was tried, whatever was entered before."""
    await execute(api, job(name=by), [action], throttle=Throttle(4), pool=pool_of(api, at=at))  # type: ignore[arg-type]
    return bool(node(api)["spec"].get("unschedulable"))


async def counted(api: MemoryApi) -> list[tuple[str, datetime | None]]:
    """Job and time of what an operator counts that has just started."""
    return [(mark.job, mark.done) for mark in (await pool_of(api).read()).ledger.entries]


@pytest.mark.parametrize("noticed", [True, False], ids=["the operator saw it uncordoned", "it was away"])
async def test_three_cordons_of_one_node_count_three_times_for_whoever_leads_next(*, noticed: bool) -> None:
    """A person has uncordoned it in between, and the jobs are deleted."""
    api = with_node()
    times = [NOW + timedelta(seconds=10 * number) for number in range(3)]
    for number, time in enumerate(times):
        await cordon(api, at=time, by=f"job-{number}")
        node(api)["spec"] = {}
        if noticed:
            await remove_mark(api, "n1")  # type: ignore[arg-type]
    assert await counted(api) == [(f"default/job-{number}", time) for number, time in enumerate(times)]


async def test_a_cordon_counts_although_its_node_was_replaced_its_job_deleted_and_its_operator_killed() -> None:
    api = with_node()
    await cordon(api)
    make_node(api, "another machine")
    assert await counted(api) == [("default/flux", NOW)]


async def test_a_cordon_is_entered_before_its_node_is_written_and_counts_though_that_fails() -> None:
    api = with_node()

    async def guarded(verb: str, _path: str) -> None:
        if verb == "PATCH":
            raise ApiError(403, "Forbidden", "a webhook guards nodes")

    api.before = guarded
    with pytest.raises(AssertionError):
        await cordon(api)
    assert await counted(api) == [("default/flux", None)]
    api.before = None
    await cordon(api)
    assert await counted(api) == [("default/flux", NOW)], "a second try is the same cordon"


@pytest.mark.parametrize(
    ("there", "counts_as_done"),
    [(None, True), ("made anew", True), ("uid-1", False)],
    ids=["deleted", "another of its name", "there"],
)
async def test_what_a_job_that_is_gone_had_still_to_do_counts_as_done_when_it_was_entered(
    *, there: str | None, counts_as_done: bool
) -> None:
    api = MemoryApi()
    await ledger_of(api).note(ENTRY, now=NOW)
    if there:
        make_job(api, there)
    assert await counted(api) == [("default/flux", NOW if counts_as_done else None)]


async def test_what_a_person_has_ended_is_not_done_again_though_its_node_bears_the_mark_of_another_since() -> None:
    api = with_node()
    await cordon(api)
    node(api)["spec"] = {}
    await cordon(api, at=NOW + timedelta(seconds=10), by="another")
    node(api)["spec"] = {}
    with pytest.raises(AssertionError):
        await cordon(api)


async def test_a_cordon_whose_node_was_written_is_done_though_the_ledger_does_not_hear_of_it() -> None:
    api = with_node()

    async def deaf(verb: str, path: str) -> None:
        if verb == "PUT" and path == LEDGER:
            raise ApiError(500, "InternalError", "etcdserver: leader changed")

    api.before = deaf
    await cordon(api)
    assert await counted(api) == [("default/flux", None)]


async def test_what_is_decided_by_a_ledger_that_has_changed_since_is_not_entered() -> None:
    """Two leaders, for a moment: the second one's decision knows nothing of the first one's."""
    api = with_node()
    for first in ("makes the ledger", "adds to it"):
        seen = await pool_of(api).read()
        one, other = (
            [CordonNode(f"{who}, who {first}", "uid", 1, "GPUFault", NOW, NOW)] for who in ("one", "the other")
        )
        assert not await pool_of(api).enter(job(), one, seen)
        with pytest.raises(Conflict):
            await pool_of(api).enter(job(), other, seen)
    assert len(await counted(api)) == 2


async def down(verb: str, path: str) -> None:
    """What the API server says of ConfigMaps while the pods of a webhook for them are down."""
    if verb in ("POST", "PUT") and path == LEDGER:
        raise ApiError(500, "InternalError", 'failed calling webhook "policy.example.com": no endpoints available')


def one_of_many(api: MemoryApi) -> CordonNode:
    """A node of a pool that is large enough for cordons."""
    for number in range(2, 22):
        api.put(f"/api/v1/nodes/n{number}", spec={}, status=node(api)["status"])
    return CordonNode("n1", "first", 1, "GPUFault in attempt 1", NOW, NOW)


async def test_what_could_not_be_entered_for_a_while_is_entered_and_done_once_it_can_be() -> None:
    api = with_node()
    action = one_of_many(api)
    seen, api.before = await pool_of(api).read(), down
    assert not await pool_of(api).enter(job(), [action], seen), "nobody waits for it"
    assert not await carried_out(api, action)
    api.before = None
    assert await carried_out(api, action)
    assert await counted(api) == [("default/flux", NOW)]


async def test_what_is_entered_late_counts_what_others_have_entered_since() -> None:
    api = with_node()
    action, other = one_of_many(api), replace(ENTRY, node="n2", job="default/another", uid="")
    await ledger_of(api).note(replace(other, done=NOW), now=NOW)
    assert not await carried_out(api, action)
    later = NOW + timedelta(minutes=61)
    assert await carried_out(api, replace(action, at=later), at=later)


async def test_what_an_earlier_pass_decided_is_not_entered_with_what_this_one_decides() -> None:
    """The brakes let the new one pass, and have not looked at the old one again."""
    api = with_node()
    action = one_of_many(api)
    entry = CordonedNode(name="n1", uid="first", reason="GPUFault", attempt=1, time=NOW)
    known = job(status=TrainingJobStatus(cordoned_nodes=(entry,)))
    new = replace(action, node="n2", time=NOW + timedelta(minutes=30))
    assert not await pool_of(api).enter(known, [action, new], await pool_of(api).read())
    assert [mark.node for mark in (await ledger_of(api).read()).entries] == ["n2"]


async def test_what_is_entered_late_and_runs_into_the_clusters_limit_latches_the_breaker() -> None:
    api = with_node()
    action = one_of_many(api)
    for number in (2, 3):
        await ledger_of(api).note(CordonMark(f"n{number}", f"team-{number}/flux", NOW, done=NOW), now=NOW)
    assert not await carried_out(api, action)
    assert "default/flux: 2 nodes were cordoned" in (await pool_of(api).read()).latched
    assert len(await counted(api)) == 2


async def test_an_open_cordon_is_not_entered_anew_by_a_ledger_that_cannot_be_read() -> None:
    """Its job goes on: a conflict would have it look again for ever."""
    api = with_node()
    action = one_of_many(api)
    api.put(LEDGER, data={"cordons": "x"})
    assert not await pool_of(api).enter(job(), [action], await pool_of(api).read())
    assert not await carried_out(api, action)


async def test_two_that_note_at_the_same_time_lose_nothing() -> None:
    api = MemoryApi()
    meanwhile = [replace(ENTRY, node=f"n{number}") for number in (2, 3)]

    async def somebody_else(verb: str, _path: str) -> None:
        if verb in ("POST", "PUT") and meanwhile:
            await ledger_of(api).note(meanwhile.pop(), now=NOW)

    api.before = somebody_else
    await ledger_of(api).note(ENTRY, now=NOW)
    assert {mark.node for mark in (await ledger_of(api).read()).entries} == {"n1", "n2", "n3"}


async def test_a_ledger_that_somebody_deletes_while_it_is_written_is_looked_at_again() -> None:
    api = MemoryApi()
    await ledger_of(api).note(ENTRY, now=NOW)
    seen = await ledger_of(api).read()
    del api.objects[LEDGER]
    with pytest.raises(Conflict):
        await ledger_of(api).enter([ENTRY], seen, now=NOW)
    await ledger_of(api).note(ENTRY, now=NOW)
    assert (await ledger_of(api).read()).entries == (ENTRY,)


@pytest.mark.parametrize(
    ("done", "hours"), [(NOW, 1), (None, 2)], ids=["done: the window", "or not: as long as it is tried, too"]
)
async def test_an_entry_goes_with_the_next_write_once_no_window_counts_it(done: datetime | None, hours: int) -> None:
    api = MemoryApi()
    await ledger_of(api).note(replace(ENTRY, done=done), now=NOW)
    end = NOW + timedelta(hours=hours)
    for now, left in ((end - timedelta(seconds=1), 2), (end, 2)):
        await ledger_of(api).note(replace(ENTRY, node=f"at {now}", time=now), now=now)
        nodes = [mark.node for mark in (await ledger_of(api).read()).entries]
        assert len(nodes) == left
        assert ("n1" in nodes) == (now < end)


READABLE = '{"node": "n1", "job": "a/b", "time": "2026-01-01T00:00:00Z"}'
GARBAGE: dict[str, Any] = {
    "no JSON": "x",
    "no list": "{}",
    "of numbers": "[1]",
    "no time": '[{"node": "n1", "job": "a/b"}]',
    "no job": '[{"node": "n1", "job": "a/b?x= y", "time": "2026-01-01T00:00:00Z"}]',
    "no time zone": '[{"node": "n1", "job": "a/b", "time": "2026-01-01T00:00:00"}]',
    "done without a time zone": f'[{READABLE[:-1]}, "done": "2026-01-01T00:00:00"}}]',
    "deep": "[" * 100_000,
    "not text": ["n1"],
    "more than fit": f"[{','.join([READABLE] * (LIMIT + 1))}]",
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
async def test_a_ledger_that_cannot_be_read_lets_nobody_cordon_and_says_how_to_begin_anew(said: object) -> None:
    api = with_node()
    api.put(LEDGER, data={"cordons": said})
    found = await pool_of(api).read()
    assert "oarlock-cordons is no ledger of cordons" in found.unreadable
    assert "kubectl delete configmap oarlock-cordons -n oarlock" in found.unreadable
    with pytest.raises(AssertionError):
        await cordon(api)
    del api.objects[LEDGER]
    await cordon(api)


@pytest.mark.parametrize("said", [{}, {"data": None}, {"data": {"another": "x"}}], ids=str)
async def test_a_ledger_without_entries_is_an_empty_one(said: Json) -> None:
    api = with_node()
    api.put(LEDGER, **said)
    await cordon(api)
    assert await counted(api) == [("default/flux", NOW)]


async def test_what_a_later_release_says_of_an_entry_hinders_nobody() -> None:
    api = with_node()
    api.put(LEDGER, data={"cordons": f'[{READABLE[:-1]}, "rack": 7}}]'})
    await cordon(api)
    assert [name for name, _ in await counted(api)] == ["a/b", "default/flux"]


async def test_a_full_ledger_lets_nobody_cordon() -> None:
    api = with_node()
    many = [replace(ENTRY, node=f"n{number}") for number in range(LIMIT)]
    await ledger_of(api).enter(many, await ledger_of(api).read(), now=NOW)
    seen = await pool_of(api).read()
    action = CordonNode("another", "uid", 1, "GPUFault", NOW, NOW)
    assert "1024 cordons already" in await pool_of(api).enter(job(), [action], seen)


async def test_the_ledger_says_what_the_brakes_allow_to_who_reads_it() -> None:
    api = MemoryApi()
    ledger = CordonLedger(cluster=api, brakes=replace(BRAKES, max_nodes=3))  # type: ignore[arg-type]
    await ledger.enter([ENTRY], await ledger.read(), now=NOW)
    told = {"nodes": 3, "percent": 10.0, "namespaceNodes": 1, "namespacePercent": 2.0, "windowSeconds": 3600}
    assert json.loads(api.objects[LEDGER]["data"]["limits"]) == told
