"""A Cluster whose API server is a function of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from kubernetes.aio.client import Configuration

from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.credentials import Load


@asynccontextmanager
async def answering(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]], *, load: Load | None = None
) -> AsyncIterator[Cluster]:
    """A Cluster each of whose requests `handle` answers, for the length of the block."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    cluster = Cluster(configuration, load=load)
    yield cluster
    await cluster.close()
    await runner.cleanup()
