"""The resync: every job now and then, and those that are gone once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from virtual_time import in_virtual_time, now

from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.decoding import Page
from oarlock_operator.model.observation import Key
from oarlock_operator.process.resync import Resync
from oarlock_operator.process.workqueue import WorkQueue


class Listing:
    """Jobs by name; None where the API server does not answer."""

    def __init__(self, *names: str) -> None:
        self.names: tuple[str, ...] | None = names

    async def pages_of(self, kind: Any, path: str, *, metadata_only: bool) -> AsyncIterator[Page[Any]]:
        if self.names is None:
            raise ApiError(0, "TimeoutError", path)
        assert metadata_only, "what a job asks for is nobody's business here"
        raw = [{"metadata": {"namespace": "default", "name": name}, "spec": {"nodes": 4}} for name in self.names]
        yield Page(items=tuple(msgspec.convert(each, kind) for each in raw))


async def enqueued(queue: WorkQueue[Key], *, seconds: float) -> list[str]:
    """Names of the jobs that are looked at in so long, in order of their names."""
    found = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                key, _ = await queue.get()
                queue.done(key)
                found.append(key[1])
    except TimeoutError:
        return sorted(found)


@in_virtual_time
async def test_a_job_whose_end_no_watch_told_is_looked_at_for_as_long_as_it_is_remembered() -> None:
    remembered = {("default", "ended")}
    queue: WorkQueue[Key] = WorkQueue(clock=now)
    resync = Resync(Listing("a"), [], queue, interval=100.0, clock=now, remembered=lambda: remembered)  # type: ignore[arg-type]
    running = asyncio.create_task(resync.run())
    assert await enqueued(queue, seconds=50) == ["a", "ended"]
    remembered.clear()
    assert await enqueued(queue, seconds=60) == ["a"]
    running.cancel()


@in_virtual_time
async def test_a_list_that_fails_is_no_list_without_jobs() -> None:
    listing: Listing = Listing("a")
    queue: WorkQueue[Key] = WorkQueue(clock=now)
    resync = Resync(listing, [], queue, interval=100.0, clock=now)  # type: ignore[arg-type]
    running = asyncio.create_task(resync.run())
    assert await enqueued(queue, seconds=50) == ["a"]
    listing.names = None
    assert await enqueued(queue, seconds=3000) == []
    assert resync.health() is None, "it is asked again all the time: a new process would fare no better"
    listing.names = ("a",)
    assert await enqueued(queue, seconds=5) == ["a"]
    running.cancel()


@in_virtual_time
async def test_a_resync_that_is_not_even_tried_any_more_is_told_by_its_health() -> None:
    listing: Listing = Listing("a")
    queue: WorkQueue[Key] = WorkQueue(clock=now)
    resync = Resync(listing, [], queue, interval=100.0, clock=now)  # type: ignore[arg-type]
    running = asyncio.create_task(resync.run())
    assert await enqueued(queue, seconds=50) == ["a"]
    running.cancel()
    assert await enqueued(queue, seconds=1000) == []
    assert resync.health() is not None
