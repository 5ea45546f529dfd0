"""A request travels with the question for rank 0's status while it is open, and with no other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web
from jobs import spec
from kubernetes.aio.client import Configuration
from status_pod import GOOD, PEER, POD, Server, running_job

from oarlock_api.contract import gang_key
from oarlock_api.contract.requests import MEANT
from oarlock_api.history import RecoveryStatus, Replacing, Surging
from oarlock_api.requests import RequestStatus
from oarlock_local import patience
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import Job
from oarlock_operator.observe import progress
from oarlock_operator.observe.progress import ProgressReader, Route

MASTER = b"m" * 32


@pytest.fixture
async def reader(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgressReader]:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    cluster = Cluster(configuration)
    reading = ProgressReader(cluster, Route.DIRECT, clock=time.monotonic, keys=[MASTER])
    yield reading
    await reading.close()
    await cluster.close()


def asked(server: Server, state: str, *, attempt: int = 1) -> Job:
    job = running_job(server)
    request = RequestStatus(id="mine", verb="drill", state=state, attempt=attempt)
    return replace(job, status=job.status.model_copy(update={"request": request}))


async def requested(server: Server, reader: ProgressReader, memory: JobMemory, job: Job) -> list[str]:
    """What the agents were asked for besides their status, as one that knows the key believes it."""
    key = gang_key.attempt_key(gang_key.job_key(MASTER, job.uid), job.uid, 1)
    heard = []

    async def agent(request: web.Request) -> web.Response:
        pod = POD if gang_key.asked_by_one_of_us(key, request.raw_path, pod_uid=POD.uid, now=time.time()) else PEER
        assert gang_key.asked_by_one_of_us(key, request.raw_path, pod_uid=pod.uid, now=time.time())
        assert MEANT in request.headers
        heard.append(gang_key.requested(key, request.raw_path, pod_uid=pod.uid))
        body = replace(GOOD, pod_uid=pod.uid, rank=pod.rank).to_json()
        return web.Response(text=gang_key.answer(key, request.raw_path, body))

    server.handler = agent
    assert (await reader.read(job, [POD, PEER], memory))[0] == GOOD
    for flight in list(reader._flights.values()):
        await flight
    return sorted(heard)


async def test_silence_about_a_request_counts_from_the_first_answer_to_a_question_that_carried_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)
    now, memory = [1000.0], JobMemory()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.port}"
    cluster = Cluster(configuration)
    reading = ProgressReader(cluster, Route.DIRECT, clock=lambda: now[0])
    single = replace(POD, rank=0)
    known = []
    for job, seconds in (
        (running_job(server), 100.0),
        (asked(server, "Asked"), 20.0),
        (asked(server, "Asked"), 20.0),
        (asked(server, "Done"), 0.0),
    ):
        await reading.read(job, [single], memory)
        known.append(progress.request_seconds(job, memory))
        now[0] += seconds
    await reading.close()
    await cluster.close()
    assert known == [0.0, 0.0, 20.0, 0.0]


@pytest.mark.parametrize(
    ("open_request", "expected"),
    [(("Asked", 1), ["", "drill.mine"]), (("Done", 1), ["", ""]), (("Asked", 2), ["", ""])],
)
async def test_rank_0_alone_is_asked_and_only_while_its_request_is_open(
    server: Server, reader: ProgressReader, open_request: tuple[str, int], expected: list[str]
) -> None:
    state, attempt = open_request
    assert await requested(server, reader, JobMemory(), asked(server, state, attempt=attempt)) == expected


async def test_rank_0_alone_is_told_of_the_pods_whose_end_was_seen(server: Server, reader: ProgressReader) -> None:
    lost = (Replacing(rank=1, incarnation=2, ended=True), Replacing(rank=2, incarnation=3))
    job = running_job(server)
    status = job.status.model_copy(update={"recovery": RecoveryStatus(stage="Replace", replacing=lost)})
    key = gang_key.attempt_key(gang_key.job_key(MASTER, job.uid), job.uid, 1)
    asked: list[str] = []

    async def agent(request: web.Request) -> web.Response:
        asked.append(gang_key.told_to_have_ended(key, request.raw_path, pod_uid=POD.uid))
        return web.Response(text=gang_key.answer(key, request.raw_path, GOOD.to_json()))

    server.handler = agent
    for told in (status, job.status):
        await reader.ask(replace(job, status=told), POD, JobMemory())
    assert asked == ["1-2", ""]


async def test_rank_0_is_told_of_surge_pods_and_of_none_where_they_would_be_made(
    server: Server, reader: ProgressReader
) -> None:
    wanted = spec(nodes=2, recovery={"inPlace": "Auto"}, pod={"ports": {"status": server.port}})
    job = replace(running_job(server), spec=wanted)
    until = reader._cluster.server_clock.now() + timedelta(seconds=100.4)
    surging = RecoveryStatus(surging=(Surging(rank=1, incarnation=2, hold_until_time=until),))
    key = gang_key.attempt_key(gang_key.job_key(MASTER, job.uid), job.uid, 1)
    asked: list[str] = []

    async def agent(request: web.Request) -> web.Response:
        asked.append(gang_key.told_of_surge(key, request.raw_path, pod_uid=POD.uid))
        return web.Response(text=gang_key.answer(key, request.raw_path, GOOD.to_json()))

    server.handler = agent
    for told in (
        job,
        replace(job, status=job.status.model_copy(update={"recovery": surging})),
        replace(job, spec=wanted.model_copy(update={"spares": 1})),
        running_job(server),
    ):
        await reader.ask(told, POD, JobMemory())
    assert asked == ["none", "1-2-100", "", ""]


async def test_a_gang_is_asked_while_a_pod_of_it_trains_on_until_its_surge_pod_is_ready(
    server: Server, reader: ProgressReader
) -> None:
    job, leaving = running_job(server), [POD, replace(PEER, deleting=True)]
    key = gang_key.attempt_key(gang_key.job_key(MASTER, job.uid), job.uid, 1)

    async def agent(request: web.Request) -> web.Response:
        return web.Response(text=gang_key.answer(key, request.raw_path, GOOD.to_json()))

    server.handler = agent
    assert (await reader.read(job, leaving, JobMemory()))[0] is None
    until = reader._cluster.server_clock.now() + timedelta(seconds=100)
    surging = RecoveryStatus(surging=(Surging(rank=PEER.rank, incarnation=2, hold_until_time=until),))
    job = replace(job, status=job.status.model_copy(update={"recovery": surging}))
    assert (await reader.read(job, leaving, JobMemory()))[0] == GOOD
