"""Reading /status: only this pod's own words count, and a pod that can't or won't answer properly is no news.

A real HTTP server plays the pod, directly and behind the API server's pod proxy.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from jobs import job, spec
from kubernetes.aio.client import Configuration
from status_pod import GOOD, PEER, POD, Server, running_job

from oarlock_api.contract.health import Health, HealthState
from oarlock_api.contract.status import MAX_BYTES
from oarlock_api.status import TrainingJobStatus
from oarlock_local import patience
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import Ending, Pod
from oarlock_operator.model.reasons import UNMONITORED
from oarlock_operator.observe import progress
from oarlock_operator.observe.progress import ProgressReader, Route, unmonitored


@pytest.fixture(params=Route, ids=lambda route: route.value)
async def reader(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[ProgressReader]:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    cluster = Cluster(configuration)
    reading = ProgressReader(cluster, request.param, clock=time.monotonic)
    yield reading
    await reading.close()
    await cluster.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass waits for rank 0 as long as it takes."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)


@pytest.mark.usefixtures("patient")
async def test_the_status_of_rank_0_is_read_by_its_route(
    server: Server, reader: ProgressReader, memory: JobMemory
) -> None:
    assert (await reader.read(running_job(server), [POD], memory))[0] == GOOD
    proxied = f"/api/v1/namespaces/default/pods/flux-1-0:{server.port}/proxy/status"
    assert server.asked == ["/status" if reader._route is Route.DIRECT else proxied]


async def test_a_status_that_arrives_in_pieces_is_read_whole(
    server: Server, reader: ProgressReader, memory: JobMemory
) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        body = GOOD.to_json().encode()
        for start in range(0, len(body), 100):
            await answer.write(body[start : start + 100])
            await asyncio.sleep(0)
        return answer

    server.handler = drip
    async with asyncio.timeout(patience.SECONDS):
        # A pass waits a tenth of a second for it; the answer is kept for the next one.
        while (found := (await reader.read(running_job(server), [POD], memory))[0]) is None:
            await asyncio.gather(*reader._flights.values())
    assert found == GOOD


def said(**changes: Any) -> bytes:
    return replace(GOOD, **changes).to_json().encode()


@pytest.mark.parametrize(
    "body",
    [
        said(job_uid="another-job"),
        said(pod_uid="another-pod"),
        said(pod_uid=""),
        said(attempt=2),
        b"",
        b"<html>busy</html>",
        b"[1, 2, 3]",
        b"\xff\xfe\x00",
        GOOD.to_json().encode()[:-10],
        json.dumps({**json.loads(GOOD.to_json()), "padding": "x" * MAX_BYTES}).encode(),
        GOOD.to_json().encode() + b" " * MAX_BYTES,
    ],
    ids=[
        "another job's", "another pod's", "nobody's", "another attempt's", "nothing", "HTML", "a list", "no UTF-8",
        "cut off", "oversized", "oversized by blanks",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("patient")
async def test_what_is_not_this_pod_s_own_whole_status_is_no_news(
    server: Server, reader: ProgressReader, memory: JobMemory, body: bytes
) -> None:
    server.handler = server.tell(body)
    assert (await reader.read(running_job(server), [POD], memory))[0] is None
    assert server.asked
    server.handler = server.tell(GOOD.to_json())
    assert (await reader.read(running_job(server), [POD], memory))[0] == GOOD, "the reader works on"


async def test_an_endless_answer_is_no_news_and_is_not_read_to_its_end(
    server: Server, reader: ProgressReader, memory: JobMemory
) -> None:
    written = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while written < 1000 * MAX_BYTES:
                await answer.write(b" " * MAX_BYTES)
                written += MAX_BYTES
        finally:
            server.gate.set()
        return answer

    server.handler = flood
    assert (await reader.read(running_job(server), [POD], memory))[0] is None
    await asyncio.wait_for(server.gate.wait(), patience.SECONDS)
    assert written < 1000 * MAX_BYTES


@pytest.mark.usefixtures("patient")
async def test_a_pod_that_is_too_slow_is_no_news(
    server: Server, reader: ProgressReader, memory: JobMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TIMEOUT_SECONDS", 0.1)

    async def never(_: web.Request) -> web.Response:
        await server.gate.wait()
        return web.Response(text=GOOD.to_json())

    server.handler = never
    while not server.asked:  # on a machine that is busy that time may be over before it is asked
        assert (await reader.read(running_job(server), [POD], memory))[0] is None
        await asyncio.sleep(0)  # a reader whose question is on its way waits for nothing, and lets nothing else run


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_an_error_is_no_news(server: Server, reader: ProgressReader, memory: JobMemory, status: int) -> None:
    server.handler = server.tell("busy", status)
    assert (await reader.read(running_job(server), [POD], memory))[0] is None


async def test_a_pod_can_t_send_the_operator_elsewhere(server: Server, memory: JobMemory) -> None:
    async def redirect(request: web.Request) -> web.Response:
        if request.path == "/status":
            raise web.HTTPFound("/secret")
        return web.Response(text=GOOD.to_json())

    server.handler = redirect
    reader = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=time.monotonic)
    assert (await reader.read(running_job(server), [POD], memory))[0] is None
    assert server.asked == ["/status"]
    await reader.close()


async def test_a_pod_where_nobody_listens_is_no_news(memory: JobMemory) -> None:
    reader = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=time.monotonic)
    closed = job(spec=spec(pod={"ports": {"status": 1024}}), status=TrainingJobStatus(attempt=1))
    assert (await reader.read(closed, [POD], memory))[0] is None
    await reader.close()


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [PEER],
        [replace(POD, started=False)],
        [replace(POD, address="")],
        [replace(POD, attempt=2)],
        [replace(POD, gone=True)],
        [replace(POD, deleting=True)],
        [POD, replace(PEER, ending=Ending(1))],
        [POD, replace(PEER, deleting=True)],
    ],
    ids=[
        "no pod", "no rank 0", "not started", "no address", "another attempt", "gone", "being deleted", "a peer ended",
        "a peer is being deleted",
    ],
)  # fmt: skip
async def test_a_gang_that_is_not_whole_and_running_is_not_asked(
    server: Server, reader: ProgressReader, memory: JobMemory, pods: list[Pod]
) -> None:
    assert (await reader.read(running_job(server), pods, memory))[0] is None
    assert server.asked == []


@pytest.mark.parametrize("how", [{"ending": Ending(1)}, {"deleting": True}], ids=["ended", "is being deleted"])
async def test_a_gang_is_asked_though_a_pod_that_stands_by_has_gone(
    server: Server, reader: ProgressReader, memory: JobMemory, how: dict[str, Any]
) -> None:
    job = running_job(server)
    job = replace(job, status=job.status.model_copy(update={"standby": (PEER.rank,)}))
    await reader.read(job, [POD, replace(PEER, **how)], memory)
    assert server.asked != []


async def test_gpus_that_nobody_watches_are_told_of_once_that_lasts_and_until_it_is_over(
    server: Server, monkeypatch: pytest.MonkeyPatch, memory: JobMemory
) -> None:
    now = 1000.0
    reader = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=lambda: now)
    # A pass waits for rank 0 as long as it takes.
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)
    blind = Health(state=HealthState.UNMONITORED, reason="this container has no NVML")
    told = []
    for health in (blind, blind, blind, Health(state=HealthState.HEALTHY), blind):
        server.handler = server.tell(replace(GOOD, health=health).to_json())
        await reader.read(running_job(server), [POD], memory)
        told.append(unmonitored(running_job(server), memory))
        now += 40
    await reader.close()
    assert told == [{}, {}, {"pod-uid": "this container has no NVML"}, {}, {}]


@pytest.mark.parametrize(
    "told_as",
    [("GPUUnmonitored", f"{UNMONITORED}p"), ("SlowNetwork", f"NCCL takes TCP; {UNMONITORED}p")],
    ids=["alone", "behind a slow network"],
)
async def test_an_operator_that_starts_does_not_know_until_it_has_asked_whether_what_was_told_of_gpus_still_holds(
    told_as: tuple[str, str], server: Server, reader: ProgressReader, memory: JobMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason, message = told_as
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)
    status = TrainingJobStatus.model_validate(
        {
            "attempt": 1,
            "conditions": [
                {
                    "type": "Degraded",
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                }
            ],
        }
    )
    told = replace(running_job(server), status=status)
    assert unmonitored(told, memory) is None
    assert unmonitored(running_job(server), memory) == {}
    blind = Health(state=HealthState.UNMONITORED, reason="this container has no NVML")
    server.handler = server.tell(replace(GOOD, health=blind).to_json())
    await reader.read(told, [POD], memory)
    assert unmonitored(told, memory) == {"pod-uid": "this container has no NVML"}
    assert unmonitored(running_job(server), memory) == {}, "not for a minute yet"


@pytest.mark.usefixtures("patient")
async def test_a_gpu_that_warns_is_remembered_until_it_warns_no_more(
    reader: ProgressReader, memory: JobMemory, server: Server
) -> None:
    health = Health(state=HealthState.HOLD, reason="GPU 1 is too hot", held=("thermalMargin",))
    server.handler = server.tell(replace(GOOD, health=health).to_json())
    await reader.read(running_job(server), [POD], memory)
    assert [(each.warning, each.held) for each in memory.heard.values()] == [("GPU 1 is too hot", ("thermalMargin",))]
    server.handler = server.tell(GOOD.to_json())
    await reader.read(running_job(server), [POD], memory)
    assert [(each.warning, each.held) for each in memory.heard.values()] == [("", ())]
