"""Resync: every job is looked at now and then, whatever the watches saw or missed. Also the process's pulse.

A job that was there the last time is looked at as well: if it is gone, what is remembered of it goes, too, though no watch
told of its end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import structlog
from msgspec import Struct

from oarlock_api.contract.names import API_VERSION, PLURAL
from oarlock_operator import metrics
from oarlock_operator.api_error import ApiError
from oarlock_operator.cluster import Cluster
from oarlock_operator.observation import Key
from oarlock_operator.pod_facts import Metadata
from oarlock_operator.workqueue import WorkQueue

log = structlog.get_logger(__name__)


def collections(namespaces: Sequence[str]) -> list[str]:
    """API paths of the TrainingJobs that the operator works on: in the namespaces named, else everywhere."""
    named = [f"/apis/{API_VERSION}/namespaces/{name}/{PLURAL}" for name in namespaces]
    return named or [f"/apis/{API_VERSION}/{PLURAL}"]


class _Named(Struct, frozen=True):
    """Of a job, only its name: a thousand whole ones would be tens of megabytes."""

    metadata: Metadata


class Resync:
    """Lists all jobs every `interval` seconds (with jitter) and enqueues them."""

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Sequence[str],
        queue: WorkQueue[Key],
        *,
        interval: float,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._queue = queue
        self._interval = interval
        self._clock = clock
        self._last: float | None = None
        self._known: set[Key] = set()

    async def run(self) -> None:
        """Resync until cancelled. A list that fails is tried again soon."""
        while True:
            try:
                found = await self._keys()
                for key in found | self._known:
                    self._queue.add(key)
                self._known = found
            except ApiError as error:
                log.warning("resync failed", error=str(error))
                await asyncio.sleep(min(5.0, self._interval))
                continue
            self._last = self._clock()
            metrics.LAST_RESYNC.set_to_current_time()
            await asyncio.sleep(self._interval * random.uniform(0.8, 1.0))  # noqa: S311 - spreads load, guards nothing

    def health(self) -> str | None:
        """What is wrong, or None: before the first resync (not leading yet) nothing is."""
        if self._last is None or self._clock() - self._last < 2 * self._interval + 30:
            return None
        return f"no resync finished for {self._clock() - self._last:.0f} s"

    async def _keys(self) -> set[Key]:
        found: set[Key] = set()
        for path in collections(self._namespaces):
            async for page in self._cluster.pages_of(_Named, path):
                found |= {(item.metadata.namespace, item.metadata.name) for item in page.items}
        return found
