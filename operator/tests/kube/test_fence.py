"""No write leaves a process that may not act: asked as the request is handed to the network, by a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from scripted_server import answering

from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster

WRITES = [
    ("POST", "/api/v1/namespaces/ns/pods"),
    ("PUT", "/apis/oarlock.dev/v1alpha1/namespaces/ns/trainingjobs/flux/status"),
    ("PATCH", "/api/v1/nodes/n1"),
    ("DELETE", "/api/v1/namespaces/ns/pods/flux-1-0"),
    ("POST", "/api/v1/namespaces/ns/configmaps"),
    ("DELETE", "/api/v1/namespaces/events/pods/leases"),
]
FREE = [
    ("POST", "/api/v1/namespaces/ns/events"),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/oarlock"),
    ("POST", "/apis/coordination.k8s.io/v1/namespaces/ns/leases"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("GET", "/api/v1/nodes/n1"),
]


PREFIXES = ["", "/k8s/clusters/c-1", "/api/v1/namespaces/ns/events"]
AUDITED = {"Audit-Id": "1"}
"""A header that an API server gives each answer."""


class Server:
    """Answers everything; `hold` keeps the requests in flight."""

    def __init__(self) -> None:
        self.status, self.headers = 200, AUDITED
        self.asked: list[tuple[str, str]] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.busy = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        self.busy.set()
        self.asked.append((request.method, request.path))
        await self.hold.wait()
        return web.json_response({}, status=self.status, headers=self.headers)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Cluster, Server]]:
    server = Server()
    async with answering(server.handle) as cluster:
        yield cluster, server


@asynccontextmanager
async def behind(prefix: str) -> AsyncIterator[tuple[Cluster, Server]]:
    """The same with an address that has a path, as behind a gateway for several clusters."""
    async with served() as (cluster, server):
        cluster.configuration.host += prefix
        yield cluster, server


async def send(cluster: Cluster, method: str, path: str) -> None:
    match method:
        case "POST":
            await cluster.create(path, {})
        case "PUT":
            await cluster.replace(path, {})
        case "PATCH":
            await cluster.merge(path, {})
        case "DELETE":
            await cluster.delete(path, uid="u")
        case _:
            await cluster.get(path)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_a_process_that_may_not_act_sends_no_write(method: str, path: str, prefix: str) -> None:
    async with behind(prefix) as (cluster, server):
        await send(cluster, method, path)
        cluster.fence = lambda: False
        with pytest.raises(ApiError, match="does not hold the Lease"):
            await send(cluster, method, path)
        assert server.asked == [(method, prefix + path)]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("method", "path"), FREE)
async def test_what_decides_nothing_about_jobs_is_free_of_the_fence(method: str, path: str, prefix: str) -> None:
    async with behind(prefix) as (cluster, server):
        cluster.fence = lambda: False
        await send(cluster, method, path)
        assert server.asked == [(method, prefix + path)]


async def test_a_write_that_waited_for_a_connection_is_not_sent_once_the_process_may_not_act(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oarlock_operator.kube.cluster.CONNECTIONS", 1)
    async with served() as (cluster, server):
        server.hold.clear()
        slow = asyncio.create_task(cluster.get("/api/v1/nodes/n1"))
        await server.busy.wait()
        queued = asyncio.create_task(cluster.create("/api/v1/namespaces/ns/pods", {}))
        await asyncio.sleep(0)
        cluster.fence = lambda: False
        server.hold.set()
        await slow
        with pytest.raises(ApiError, match="does not hold the Lease"):
            await queued
        assert server.asked == [("GET", "/api/v1/nodes/n1")]
