"""The watches: everything is told, in order, through chunks, ended streams, forgotten versions and dead servers.

A real HTTP server plays the API server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from scripted_server import answering
from structlog.testing import capture_logs

from oarlock_local import patience
from oarlock_operator.kube import collection_watch
from oarlock_operator.kube.cluster import PAGE_BYTES
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.process.watches import job_watch, pod_watch

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "padding": "x" * 70_000}}


def listed(*names: str, version: int, more: str = "") -> Answer:
    async def answer(_: web.Request) -> web.Response:
        metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
        return web.json_response({"metadata": metadata, "items": [pod(name, version) for name in names]})

    return answer


def streamed(*events: tuple[str, dict[str, Any]], piece: int = 65_536) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        body = b"".join(json.dumps({"type": kind, "object": item}).encode() + b"\n" for kind, item in events)
        for start in range(0, len(body), piece):
            await response.write(body[start : start + piece])
        return response

    return answer


async def broken(_: web.Request) -> web.Response:
    return web.json_response({"reason": "InternalError", "message": "etcd"}, status=500)


async def forgotten(_: web.Request) -> web.Response:
    return web.json_response({"reason": "Expired", "message": "too old"}, status=410)


class Script:
    """Answers requests one after the other, then stays silent; remembers what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []
        self.done, self.both = asyncio.Event(), asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if len(self.asked) == 2:
            self.both.set()
        if not self.answers:
            self.done.set()
            await asyncio.sleep(3600)
        return await self.answers.pop(0)(request)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_watch, "FIRST_DELAY", 0.01)


async def told(*answers: Answer) -> tuple[list[tuple[str, str]], Script]:
    """What the watch passed on until the server fell silent, and what it asked for."""
    script, seen = Script(*answers), []
    async with answering(script.handle) as cluster:
        watching = asyncio.create_task(
            pod_watch(cluster, [], lambda kind, item: seen.append((kind, item.metadata.name))).run()
        )
        await asyncio.wait_for(script.done.wait(), patience.SECONDS)
        watching.cancel()
        await asyncio.wait([watching])
    return seen, script


async def test_what_is_there_is_told_first_in_chunks_and_then_what_happens() -> None:
    seen, script = await told(
        listed("a", version=5, more="next"),
        listed("b", version=5),
        streamed(("ADDED", pod("c", 6)), ("DELETED", pod("a", 7)), piece=1000),
    )
    assert seen == [("LISTED", "a"), ("LISTED", "b"), ("ADDED", "c"), ("DELETED", "a")]
    assert all(asked["labelSelector"] == "oarlock.dev/job" for asked in script.asked)
    assert script.asked[1]["continue"] == "next"
    assert script.asked[2]["resourceVersion"] == "5"


async def test_a_stream_that_ended_goes_on_from_the_last_version_bookmarks_included() -> None:
    seen, script = await told(
        listed(version=5),
        streamed(("ADDED", pod("a", 6)), ("BOOKMARK", {"metadata": {"resourceVersion": "40"}})),
        streamed(("MODIFIED", pod("a", 41))),
    )
    assert seen == [("ADDED", "a"), ("MODIFIED", "a")]
    assert [asked.get("resourceVersion") for asked in script.asked[1:]] == ["5", "40", "41"]


def cut(*events: tuple[str, dict[str, Any]]) -> Answer:
    """A stream that breaks in the middle of the event after these."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for kind, item in events:
            await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
        await response.write(b'{"type": "ADD')
        await asyncio.wait_for(heard.wait(), patience.SECONDS)
        heard.clear()
        assert request.transport is not None
        request.transport.abort()
        return response

    heard = asyncio.Event()
    answer.heard = heard  # type: ignore[attr-defined]
    return answer


async def test_streams_that_are_cut_go_on_from_the_last_event_and_each_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_watch, "FIRST_DELAY", 0.1)
    streams = [cut(("ADDED", pod(f"p{version}", version))) for version in (6, 7, 8)]
    script, seen = Script(listed(version=5), *streams), []
    waiting = [stream.heard for stream in streams]  # type: ignore[attr-defined]

    def sink(_kind: str, item: RawPod) -> None:
        seen.append(item.metadata.name)
        waiting[len(seen) - 1].set()

    async with answering(script.handle) as cluster:
        with capture_logs() as said:
            watching = asyncio.create_task(pod_watch(cluster, [], sink).run())
            await asyncio.wait_for(script.done.wait(), patience.SECONDS)
        watching.cancel()
        await asyncio.wait([watching])
    assert seen == ["p6", "p7", "p8"]
    assert [asked.get("resourceVersion") for asked in script.asked[1:]] == ["5", "6", "7", "8"]
    assert [line["in_seconds"] for line in said if "in_seconds" in line] == [0.1, 0.1, 0.1]


async def test_a_pod_that_cannot_be_read_stops_neither_the_list_nor_the_watch() -> None:
    odd = {"metadata": {"name": "odd", "resourceVersion": "6", "uid": "u"}, "status": {"containerStatuses": "none"}}

    async def with_odd(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": [odd, pod("a", 4)]})

    seen, script = await told(with_odd, streamed(("MODIFIED", odd), ("ADDED", pod("b", 7))))
    assert seen == [("LISTED", "a"), ("ADDED", "b")]
    assert [asked.get("resourceVersion") for asked in script.asked[1:]] == ["5", "7"]


async def test_of_jobs_only_metadata_are_asked_for() -> None:
    accepted: list[str] = []

    async def listed_jobs(request: web.Request) -> web.Response:
        accepted.append(request.headers["Accept"])
        named = {"metadata": {"namespace": "ns", "name": "flux", "resourceVersion": "4"}}
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": [named]})

    async def changed(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept"])
        named = {"metadata": {"namespace": "ns", "name": "flux", "resourceVersion": "6"}}
        return await streamed(("MODIFIED", named))(request)

    script, seen = Script(listed_jobs, changed), []
    async with answering(script.handle) as cluster:
        watching = asyncio.create_task(job_watch(cluster, [], lambda kind, job: seen.append((kind, job.key))).run())
        await asyncio.wait_for(script.done.wait(), patience.SECONDS)
        watching.cancel()
        await asyncio.wait([watching])
    assert seen == [("LISTED", ("ns", "flux")), ("MODIFIED", ("ns", "flux"))]
    assert [accept.partition(";")[2].partition(";")[0] for accept in accepted] == [
        "as=PartialObjectMetadataList",
        "as=PartialObjectMetadata",
    ]


async def test_a_list_of_large_objects_is_read_in_chunks_that_fit() -> None:
    """Forty objects of a megabyte each: the server says how many it gives by what it is asked for."""
    largest = 0

    async def fat(request: web.Request) -> web.Response:
        nonlocal largest
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        items = [{"metadata": {"name": f"p{n}", "padding": "x" * 2**20}} for n in range(start, min(40, start + limit))]
        rest = {"continue": str(start + limit)} if start + limit < 40 else {}
        body = json.dumps({"metadata": {"resourceVersion": "5", **rest}, "items": items})
        largest = max(largest, len(items)) if len(body) <= PAGE_BYTES else largest
        return web.Response(text=body, content_type="application/json")

    seen, _ = await told(*[fat] * 9)
    assert [name for _, name in seen] == [f"p{n}" for n in range(40)]
    assert largest == 7


GONE = ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


@pytest.mark.parametrize("how", [streamed(GONE), forgotten], ids=["in the stream", "as the answer"])
async def test_a_version_that_the_server_has_forgotten_means_listing_anew(how: Answer) -> None:
    seen, script = await told(listed("a", version=5), how, listed("a", "b", version=90))
    assert seen == [("LISTED", "a"), ("LISTED", "a"), ("LISTED", "b")]
    assert script.asked[-1]["resourceVersion"] == "90"


async def test_an_error_of_the_server_s_own_in_the_stream_is_only_another_failure() -> None:
    error = ("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"})
    seen, script = await told(listed("a", version=5), streamed(error), streamed(("DELETED", pod("a", 6))))
    assert seen == [("LISTED", "a"), ("DELETED", "a")]
    assert [asked.get("resourceVersion") for asked in script.asked[1:]] == ["5", "5", "6"]


async def test_a_server_that_fails_is_asked_again_without_forgetting_where_it_was() -> None:
    seen, script = await told(broken, listed("a", version=5), broken, broken, streamed(("DELETED", pod("a", 6))))
    assert seen == [("LISTED", "a"), ("DELETED", "a")]
    assert [asked.get("resourceVersion") for asked in script.asked[2:]] == ["5", "5", "5", "6"]


async def test_named_namespaces_are_watched_one_by_one() -> None:
    script = Script()
    async with answering(script.handle) as cluster:
        watching = asyncio.create_task(pod_watch(cluster, ["one", "two"], lambda *_: None).run())
        await asyncio.wait_for(script.done.wait(), patience.SECONDS)
        await asyncio.wait_for(script.both.wait(), patience.SECONDS)
        watching.cancel()
        await asyncio.wait([watching])
    assert len(script.asked) == 2
