"""A pod's /status on a real socket, for tests of who asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web
from jobs import job, spec

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.status import CheckpointStatus, PodStatus
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.model.observation import Job, Pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
GOOD = PodStatus(
    "uid-1",
    "pod-uid",
    1,
    0,
    "Training",
    "2026-01-01T12:00:00+00:00",
    figures=Figures(
        step=7,
        loss=0.5,
    ),
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


def running_job(server: Server, attempt: int = 1) -> Job:
    """A job whose pods answer at the server's port."""
    ports = {"ports": {"status": server.port, "rendezvous": 29500}}
    return job(spec=spec(pod=ports), status=TrainingJobStatus(attempt=attempt))


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A server that is up."""
    playing = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", playing.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    playing.port = runner.addresses[0][1]
    try:
        yield playing
    finally:
        playing.gate.set()
        await runner.cleanup()
