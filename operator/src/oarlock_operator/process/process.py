"""The operator's process: it serves /healthz, reads what it needs to start, and works in terms while it holds the Lease.

It ends when it is told to, and at nothing that the API server says or fails to say.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import structlog
from kubernetes.aio.client import Configuration

from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.credentials import load_configuration
from oarlock_operator.kube.leader import Leader, LeadershipLost
from oarlock_operator.kube.server_clock import since_boot
from oarlock_operator.observe.progress import Route
from oarlock_operator.process.lead import Term
from oarlock_operator.process.server import serving
from oarlock_operator.process.settings import Settings
from oarlock_operator.process.startup import StartUp, own_namespace

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises OSError where the port is taken, ConfigException without credentials, UnusableKeyError.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    configuration, inside = await load_configuration(settings.kubeconfig)

    async def load() -> Configuration:
        return (await load_configuration(settings.kubeconfig))[0]

    cluster = Cluster(configuration, load=None if inside else load)
    process = Process(settings, cluster, inside=inside)
    try:
        async with serving(
            host=settings.host, port=settings.port, health=process.health, unready=process.unready
        ) as port:
            log.info("serving", port=port)
            await _until(stop, process.live())
    finally:
        await cluster.close()


class Process:
    """What the process is at. `inside`: it runs in a pod of the cluster."""

    def __init__(self, settings: Settings, cluster: Cluster, *, inside: bool) -> None:
        self._settings = settings
        self._cluster = cluster
        self._identity = f"{socket.gethostname()}-{os.getpid()}"
        direct = settings.pod_access == "direct" or (settings.pod_access == "auto" and inside)
        self._route = Route.DIRECT if direct else Route.PROXY
        self._start_up = StartUp(cluster, settings)
        self._term: Term | None = None
        self._leader: Leader | None = None
        if settings.leader_election:
            self._leader = Leader(
                cluster=cluster,
                namespace=settings.lease_namespace or own_namespace(),
                name=settings.lease_name,
                identity=self._identity,
                seconds=settings.lease_seconds,
                clock=since_boot,
                wall=lambda: datetime.now(UTC),
            )
            cluster.fence = self._leader.may_act

    def health(self) -> str | None:
        """What is wrong with the process, or None."""
        return self._term.resync.health() if self._term else None

    def unready(self) -> str | None:
        """What is waited for before the start, or None."""
        return self._start_up.obstacle or None

    async def live(self) -> None:
        """Lead whenever the Lease is to be had, until cancelled."""
        known = await self._start_up.read()
        while True:
            if self._leader is not None:
                await self._leader.acquire()
                known = await self._start_up.anew(known)
            self._term = Term.begun(
                self._settings, self._cluster, known=known, route=self._route, identity=self._identity
            )
            try:
                await self._term.work(self._leader.hold if self._leader else _for_ever)
            except LeadershipLost as lost:
                log.warning("all work has ended", reason=str(lost))
            except asyncio.CancelledError:
                if self._leader is not None:
                    await self._leader.release()
                raise
            finally:
                self._term = None


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _until(stop: asyncio.Event, life: Coroutine[Any, Any, None]) -> None:
    """Await `life` until it ends by itself or `stop` is set; then it is cancelled, and its end is waited for."""
    living, stopped = asyncio.create_task(life), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([living, stopped], return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
    finally:
        for task in (living, stopped):
            task.cancel()
        await asyncio.wait([living, stopped], timeout=10)
