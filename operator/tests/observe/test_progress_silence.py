"""Who is asked for /status, how often, and how long silence counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from status_pod import GOOD, PEER, POD, Server, running_job

from oarlock_api.history import RecoveryStatus
from oarlock_api.status import TrainingJobStatus
from oarlock_local import patience
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.observe import progress
from oarlock_operator.observe.progress import ProgressReader, Route


class Clock:
    """Monotonic seconds that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def timed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ProgressReader, Clock]]:
    # A pass waits a tenth of a second, which a busy machine may need for itself.
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)
    clock = Clock()
    reading = ProgressReader(Cluster(Configuration()), Route.DIRECT, clock=clock)
    yield reading, clock
    await reading.close()


async def test_others_are_asked_once_a_minute_and_rank_0_each_time(
    server: Server, timed: tuple[ProgressReader, Clock], memory: JobMemory
) -> None:
    reader, clock = timed
    for _ in range(4):
        await reader.read(running_job(server), [PEER, POD], memory)
        clock.now += 20
    assert len(server.asked) == 4 + 2


async def test_silence_counts_from_the_first_question_and_ends_with_an_answer(
    server: Server, timed: tuple[ProgressReader, Clock], memory: JobMemory
) -> None:
    reader, clock = timed
    good, server.handler = server.handler, refuse
    assert (await reader.read(running_job(server), [POD], memory))[1] == {POD.uid: 0.0}
    clock.now += 90
    assert (await reader.read(running_job(server), [POD], memory))[1] == {POD.uid: 90.0}
    server.handler = good
    assert (await reader.read(running_job(server), [POD], memory))[1] == {}


async def test_a_gang_on_its_way_is_not_asked_but_for_rank_0(
    server: Server, timed: tuple[ProgressReader, Clock], memory: JobMemory
) -> None:
    reader, _ = timed
    starting = running_job(server)
    starting = replace(starting, status=TrainingJobStatus(attempt=1, recovery=RecoveryStatus(stage="Start")))
    await reader.read(starting, [PEER, POD], memory)
    assert len(server.asked) == 1


async def refuse(_: web.Request) -> web.Response:
    return web.Response(status=503)


async def test_a_slow_answer_holds_no_pass_up_and_is_told_by_the_next(
    server: Server, timed: tuple[ProgressReader, Clock], memory: JobMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, _ = timed
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.1)
    prompt, late = server.handler, asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await late.wait()
        return await prompt(request)

    server.handler = slow
    assert await reader.read(running_job(server), [POD], memory) == (None, {})
    late.set()
    await asyncio.wait(list(reader._flights.values()), timeout=patience.SECONDS)
    server.handler = refuse
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience.SECONDS)
    assert (await reader.read(running_job(server), [POD], memory))[0] == GOOD


async def looked(reader: ProgressReader, memory: JobMemory, server: Server, **degraded: str) -> dict[str, str]:
    """What one look at rank 0 comes to that says this."""
    # A question that was asked meanwhile, and answered late, would tell of the time before.
    await asyncio.gather(*reader._flights.values())
    memory.answers.clear()
    server.handler = server.tell(replace(GOOD, degraded=degraded).to_json())
    async with asyncio.timeout(patience.SECONDS):
        while (found := (await reader.read(running_job(server), [POD], memory))[0]) is None:
            await asyncio.gather(*reader._flights.values())
    return dict(found.degraded)


async def test_a_loss_that_is_not_finite_is_told_for_five_minutes_and_what_else_is_degraded_only_now(
    server: Server, timed: tuple[ProgressReader, Clock], memory: JobMemory
) -> None:
    reader, clock = timed
    assert await looked(reader, memory, server) == {}
    told = []
    for number in range(12):
        # Every other look finds it finite again.
        now = {} if number % 2 else {"NonFiniteLoss": "the last one", "CheckpointNotCopied": "the bucket is away"}
        told.append(await looked(reader, memory, server, **now))
        clock.now += 60
    assert all("NonFiniteLoss" in each for each in told)
    assert told[-2]["NonFiniteLoss"] == "the last one"
    assert set(told[-1]) == {"NonFiniteLoss"}
    clock.now += 180
    assert await looked(reader, memory, server) == {}, "nothing for five minutes"
