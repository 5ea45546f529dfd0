"""/healthz, /readyz and /metrics of the operator.

/healthz fails when the process does not even try to do its work any more (no resync begun anew for twice its interval), so
that the kubelet replaces it: an API server that is away is no reason, since a new process would not reach it either. /readyz
fails until what is read at the start has been read, and says what is waited for; whoever leads or waits its turn is ready.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from oarlock_operator import metrics

Health = Callable[[], str | None]
"""Returns what is wrong, or None."""


@asynccontextmanager
async def serving(*, host: str, port: int, health: Health, unready: Health = lambda: None) -> AsyncIterator[int]:
    """Serve while the context is open; yields the port."""

    async def healthz(_: web.Request) -> web.Response:
        wrong = health()
        return web.Response(text=f"{wrong or 'ok'}\n", status=500 if wrong else 200)

    async def readyz(_: web.Request) -> web.Response:
        wrong = unready()
        return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        body = generate_latest(metrics.REGISTRY)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
