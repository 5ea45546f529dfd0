"""What running pods answer at /status: each under an address of its own, all by one server of this process.

All of 127.0.0.0/8 is this machine: who asked for which address says whose voice is wanted. A pod whose container has ended,
or whose node is down, hangs up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from oarlock_api.contract import gang_key
from oarlock_api.contract.figures import Figures
from oarlock_api.contract.status import CheckpointStatus, PodPhase, PodStatus
from tests.chaos.client import Json
from tests.chaos.history import has_ended
from tests.chaos.nodes import Kubelets

STEPS_PER_SECOND = 5
STEPS_PER_CHECKPOINT = 50


@dataclass(slots=True)
class Voices:
    """All of them."""

    kubelets: Kubelets
    _since: dict[str, float] = field(default_factory=dict)
    """When a pod was first asked, by its uid."""
    _began: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    async def answer(self, request: web.Request) -> web.Response:
        """The status of the pod at the address that was asked for."""
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        pod = self.kubelets.history.bodies.get(self.kubelets.addresses.get(address, ""))
        if pod is None or has_ended(pod) or not self.kubelets.works_at(pod):
            request.transport.abort()
            return web.Response(status=503)
        if request.path == "/healthz":
            return web.Response(text="ok")
        said = self._status(pod).to_json()
        if key := self.kubelets.keys.get(pod["metadata"]["uid"]):
            return self._signed(request, pod, key, said)
        return web.Response(text=said, content_type="application/json")

    def _signed(self, request: web.Request, pod: Json, key: bytes, said: str) -> web.Response:
        """As an agent with the gang's key answers: only whoever signs, and signed."""
        labels, uid = pod["metadata"]["labels"], pod["metadata"]["uid"]
        own = gang_key.attempt_key(key, labels["oarlock.dev/job-uid"], int(labels["oarlock.dev/attempt"]))
        if not gang_key.asked_by_one_of_us(own, request.raw_path, pod_uid=uid, now=time.time()):
            return web.Response(status=401, text=gang_key.REFUSED)
        return web.Response(text=gang_key.answer(own, request.raw_path, said), content_type="application/json")

    def _status(self, pod: Json) -> PodStatus:
        labels, uid = pod["metadata"]["labels"], pod["metadata"]["uid"]
        since = self._since.setdefault(uid, time.monotonic())
        step = int((time.monotonic() - since) * STEPS_PER_SECOND) + 1
        saved, now = step - step % STEPS_PER_CHECKPOINT, datetime.now(UTC).isoformat()
        return PodStatus(
            job_uid=labels["oarlock.dev/job-uid"],
            pod_uid=uid,
            attempt=int(labels["oarlock.dev/attempt"]),
            rank=int(labels["oarlock.dev/rank"]),
            phase=PodPhase.TRAINING,
            heartbeat_at=now,
            started_at=self._began,
            first_step_at=now,
            figures=Figures(
                step=step,
                total_steps=100_000,
            ),
            checkpoint=CheckpointStatus(saved, f"/output/checkpoints/step-{saved}", now) if saved else None,
        )


@asynccontextmanager
async def speaking(voices: Voices) -> AsyncIterator[int]:
    """The server for the length of the block; its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", voices.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()  # noqa: S104 - every address of the loopback
    try:
        yield runner.addresses[0][1]
    finally:
        await asyncio.wait_for(runner.cleanup(), 10)
