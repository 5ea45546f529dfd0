"""Reading /status: only this pod's own words count, and a pod that can't or won't answer properly is no news.

A real HTTP server plays the pod, directly and behind the API server's pod proxy.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from worlds import job, spec

from oarlock_api.contract.health import Health, HealthState
from oarlock_api.contract.status import MAX_BYTES, CheckpointStatus, PodStatus
from oarlock_api.history import RecoveryStatus
from oarlock_api.status import TrainingJobStatus
from oarlock_operator import progress
from oarlock_operator.cluster import Cluster
from oarlock_operator.observation import Ending, Job, Pod
from oarlock_operator.progress import ProgressReader, Route

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
GOOD = PodStatus(
    "uid-1",
    "pod-uid",
    1,
    0,
    "Training",
    "2026-01-01T12:00:00+00:00",
    step=7,
    loss=0.5,
    checkpoint=CheckpointStatus(5, "/output/flux/checkpoints/step-5-a1", "2026-01-01T11:59:00+00:00"),
)
POD = Pod(name="flux-1-0", uid="pod-uid", attempt=1, rank=0, address="127.0.0.1", started=True, scheduled=True)
PEER = replace(POD, name="flux-1-1", uid="peer", rank=1)


class Server:
    """Rank 0 as one handler on a real socket. Under the proxy's path it is the API server in front of it."""

    def __init__(self) -> None:
        self.handler: Handler = self.tell(GOOD.to_json())
        self.asked: list[str] = []
        self.port = 0
        self.gate = asyncio.Event()

    @staticmethod
    def tell(body: str | bytes, status: int = 200) -> Handler:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=body, status=status)

        return answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        return await self.handler(request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    playing = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", playing.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    playing.port = runner.addresses[0][1]
    yield playing
    playing.gate.set()
    await runner.cleanup()


@pytest.fixture(params=Route, ids=lambda route: route.value)
async def reader(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[ProgressReader]:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    cluster = Cluster(configuration)
    reading = ProgressReader(cluster, request.param, clock=time.monotonic)
    yield reading
    await reading.close()
    await cluster.close()


def running_job(server: Server, attempt: int = 1) -> Job:
    ports = {"ports": {"status": server.port, "rendezvous": 29500}}
    return job(spec=spec(pod=ports), status=TrainingJobStatus(attempt=attempt))


async def test_the_status_of_rank_0_is_read_by_its_route(server: Server, reader: ProgressReader) -> None:
    assert (await reader.read(running_job(server), [POD]))[0] == GOOD
    proxied = f"/api/v1/namespaces/default/pods/flux-1-0:{server.port}/proxy/status"
    assert server.asked == ["/status" if reader._route is Route.DIRECT else proxied]


async def test_a_status_that_arrives_in_pieces_is_read_whole(server: Server, reader: ProgressReader) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        body = GOOD.to_json().encode()
        for start in range(0, len(body), 100):
            await answer.write(body[start : start + 100])
            await asyncio.sleep(0)
        return answer

    server.handler = drip
    async with asyncio.timeout(20):
        # A pass waits a tenth of a second for it; the answer is kept for the next one.
        while (found := (await reader.read(running_job(server), [POD]))[0]) is None:
            pass
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
async def test_what_is_not_this_pod_s_own_whole_status_is_no_news(
    server: Server, reader: ProgressReader, body: bytes
) -> None:
    server.handler = server.tell(body)
    assert (await reader.read(running_job(server), [POD]))[0] is None
    assert server.asked
    server.handler = server.tell(GOOD.to_json())
    assert (await reader.read(running_job(server), [POD]))[0] == GOOD, "the reader works on"


async def test_an_endless_answer_is_no_news_and_is_not_read_to_its_end(server: Server, reader: ProgressReader) -> None:
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
    assert (await reader.read(running_job(server), [POD]))[0] is None
    await asyncio.wait_for(server.gate.wait(), 10)
    assert written < 1000 * MAX_BYTES


async def test_a_pod_that_is_too_slow_is_no_news(
    server: Server, reader: ProgressReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TIMEOUT_SECONDS", 0.1)

    async def never(_: web.Request) -> web.Response:
        await server.gate.wait()
        return web.Response(text=GOOD.to_json())

    server.handler = never
    assert (await reader.read(running_job(server), [POD]))[0] is None
    assert server.asked


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_an_error_is_no_news(server: Server, reader: ProgressReader, status: int) -> None:
    server.handler = server.tell("busy", status)
    assert (await reader.read(running_job(server), [POD]))[0] is None


async def test_a_pod_can_t_send_the_operator_elsewhere(server: Server) -> None:
    async def redirect(request: web.Request) -> web.Response:
        if request.path == "/status":
            raise web.HTTPFound("/secret")
        return web.Response(text=GOOD.to_json())

    server.handler = redirect
    reader = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=time.monotonic)
    assert (await reader.read(running_job(server), [POD]))[0] is None
    assert server.asked == ["/status"]
    await reader.close()


async def test_a_pod_where_nobody_listens_is_no_news() -> None:
    reader = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=time.monotonic)
    closed = job(spec=spec(pod={"ports": {"status": 1024}}), status=TrainingJobStatus(attempt=1))
    assert (await reader.read(closed, [POD]))[0] is None
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
    server: Server, reader: ProgressReader, pods: list[Pod]
) -> None:
    assert (await reader.read(running_job(server), pods))[0] is None
    assert server.asked == []


class Clock:
    """Monotonic seconds that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def timed() -> AsyncIterator[tuple[ProgressReader, Clock]]:
    clock = Clock()
    reading = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=clock)
    yield reading, clock
    await reading.close()


async def test_others_are_asked_once_a_minute_and_rank_0_each_time(
    server: Server, timed: tuple[ProgressReader, Clock]
) -> None:
    reader, clock = timed
    for _ in range(4):
        await reader.read(running_job(server), [PEER, POD])
        clock.now += 20
    assert len(server.asked) == 4 + 2


async def test_silence_counts_from_the_first_question_and_ends_with_an_answer(
    server: Server, timed: tuple[ProgressReader, Clock]
) -> None:
    reader, clock = timed
    good, server.handler = server.handler, refuse
    assert (await reader.read(running_job(server), [POD]))[1] == {POD.uid: 0.0}
    clock.now += 90
    assert (await reader.read(running_job(server), [POD]))[1] == {POD.uid: 90.0}
    server.handler = good
    assert (await reader.read(running_job(server), [POD]))[1] == {}


async def test_a_gang_on_its_way_is_not_asked_but_for_rank_0(
    server: Server, timed: tuple[ProgressReader, Clock]
) -> None:
    reader, _ = timed
    starting = running_job(server)
    starting = replace(starting, status=TrainingJobStatus(attempt=1, recovery=RecoveryStatus(stage="Start")))
    await reader.read(starting, [PEER, POD])
    assert len(server.asked) == 1


async def refuse(_: web.Request) -> web.Response:
    return web.Response(status=503)


async def test_a_slow_answer_holds_no_pass_up_and_is_told_by_the_next(
    server: Server, timed: tuple[ProgressReader, Clock]
) -> None:
    reader, _ = timed
    prompt, late = server.handler, asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await late.wait()
        return await prompt(request)

    server.handler = slow
    assert await reader.read(running_job(server), [POD]) == (None, {})
    late.set()
    await asyncio.wait(list(reader._flights.values()), timeout=5)
    server.handler = refuse
    assert (await reader.read(running_job(server), [POD]))[0] == GOOD


async def test_a_gpu_that_warns_is_remembered_until_it_warns_no_more(reader: ProgressReader, server: Server) -> None:
    health = Health(state=HealthState.HOLD, reason="GPU 1 is too hot")
    server.handler = server.tell(replace(GOOD, health=health).to_json())
    await reader.read(running_job(server), [POD])
    assert reader.warnings(running_job(server)) == {"pod-uid": "GPU 1 is too hot"}
    server.handler = server.tell(GOOD.to_json())
    await reader.read(running_job(server), [POD])
    assert reader.warnings(running_job(server)) == {}
