"""Reading /status: step, loss, newest checkpoint from rank 0; from others whether they live.

Bounded in time and size, and believed only if it names this job, this pod and this attempt, because addresses are reused.
A pod that does not answer is no news, never an error: a pass must not fail because a trainer is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

import aiohttp

from oarlock_api.contract.status import MAX_BYTES, PodStatus, parse_status
from oarlock_api.contract.wire import WireError
from oarlock_operator.api_error import ApiError
from oarlock_operator.cluster import Cluster, read_at_most
from oarlock_operator.observation import Job, Key, Pod

TIMEOUT_SECONDS = 2.0
PARALLEL = 16


class Route(Enum):
    """How a pod is reached."""

    DIRECT = "direct"
    PROXY = "proxy"


class ProgressReader:
    """Reads /status by one route. Close it with the process."""

    def __init__(self, cluster: Cluster, route: Route, *, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._route = route
        self._clock = clock
        self._silent_since: dict[Key, tuple[str, float]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def read(self, job: Job, pods: Sequence[Pod]) -> tuple[PodStatus | None, float]:
        """Status of rank 0 of the current attempt, and for how many seconds it has not answered.

        A gang in which something has ended is not asked: its decision must not wait for an answer. The silence counts
        from this process's own first question, so that a start of the operator accuses nobody.
        """
        current = [pod for pod in pods if pod.attempt == job.status.attempt]
        first = next((pod for pod in current if pod.rank == 0 and pod.started and not pod.stopped), None)
        if first is None or any(p.stopped or p.deleting for p in current):
            return None, 0.0
        status = await self.ask(job, first)
        now, key = self._clock(), (job.namespace, job.name)
        if status is not None:
            self._silent_since.pop(key, None)
            return status, 0.0
        uid, since = self._silent_since.get(key, ("", now))
        since = since if uid == first.uid else now
        self._silent_since[key] = (first.uid, since)
        return None, now - since

    async def answering(self, job: Job, pods: Sequence[Pod]) -> frozenset[str]:
        """Uids of those pods whose agent answers."""
        gate = asyncio.Semaphore(PARALLEL)

        async def ask(pod: Pod) -> bool:
            async with gate:
                return await self.ask(job, pod) is not None

        answers = await asyncio.gather(*(ask(pod) for pod in pods))
        return frozenset(pod.uid for pod, answered in zip(pods, answers, strict=True) if answered)

    async def ask(self, job: Job, pod: Pod) -> PodStatus | None:
        """One pod's status, or None where there is no news."""
        if not pod.address or job.spec is None:
            return None
        try:
            status = parse_status(await self._fetch(job, pod, job.spec.pod.ports.status))
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, WireError):
            return None
        ours = (status.job_uid, status.pod_uid, status.attempt) == (job.uid, pod.uid, pod.attempt)
        return status if ours else None

    def forget(self, key: Key) -> None:
        """Drop what is known of a job that is over or gone."""
        self._silent_since.pop(key, None)

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
