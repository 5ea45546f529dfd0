"""Reading rank 0's /status: step, loss, newest checkpoint.

Bounded in time and size, and believed only if it names this job, this pod and this attempt, because addresses are reused.
A pod that does not answer is no news, never an error: a pass must not fail because a trainer is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum

import aiohttp

from oarlock_api.contract.status import MAX_BYTES, PodStatus, parse_status
from oarlock_api.contract.wire import WireError
from oarlock_operator.cluster import ApiError, Cluster, read_at_most
from oarlock_operator.observation import Job, Pod

TIMEOUT_SECONDS = 2.0


class Route(Enum):
    """How a pod is reached."""

    DIRECT = "direct"
    PROXY = "proxy"


class ProgressReader:
    """Reads /status by one route. Close it with the process."""

    def __init__(self, cluster: Cluster, route: Route) -> None:
        self._cluster = cluster
        self._route = route
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def read(self, job: Job, pods: Sequence[Pod]) -> PodStatus | None:
        """Status of rank 0 of the current attempt, or None where there is no news.

        A gang in which something has ended is not asked: its decision must not wait for an answer.
        """
        current = [pod for pod in pods if pod.attempt == job.status.attempt]
        first = next((pod for pod in current if pod.rank == 0 and pod.started and not pod.stopped), None)
        if first is None or not first.address or job.spec is None or any(p.stopped or p.deleting for p in current):
            return None
        try:
            status = parse_status(await self._fetch(job, first, job.spec.pod.ports.status))
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, WireError):
            return None
        ours = (status.job_uid, status.pod_uid, status.attempt) == (job.uid, first.uid, first.attempt)
        return status if ours else None

    async def _fetch(self, job: Job, pod: Pod, port: int) -> str:
        if self._route is Route.PROXY:
            path = f"/api/v1/namespaces/{job.namespace}/pods/{pod.name}:{port}/proxy/status"
            return await self._cluster.text(path, timeout=TIMEOUT_SECONDS, max_bytes=MAX_BYTES)
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = f"http://{host}:{port}/status"
        # No redirects: a pod must not choose what the operator asks for.
        async with asyncio.timeout(TIMEOUT_SECONDS), self._session.get(url, allow_redirects=False) as answer:
            return (await read_at_most(answer.content, MAX_BYTES)).decode(errors="replace")
