"""Resync: every job is looked at now and then, whatever the watches saw or missed. Also the process's pulse.

Of the jobs only metadata are listed: what they ask for is each job's own pass's affair, however large or odd it is.

A job of which anything is remembered is looked at as well: if it is gone, what is remembered of it goes, too, though no
watch told of its end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import structlog

from oarlock_operator import metrics
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.job_paths import job_collections
from oarlock_operator.kube.outages import LONGEST_DELAY
from oarlock_operator.model.observation import Key
from oarlock_operator.process.watches import SeenJob
from oarlock_operator.process.workqueue import WorkQueue

log = structlog.get_logger(__name__)

SLOWEST_SECONDS = 120.0
"""What one resync may take with a server that is slow but answers."""


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
        remembered: Callable[[], AbstractSet[Key]] = frozenset,
    ) -> None:
        """`remembered` names jobs of which something is remembered, whether or not they are still there."""
        self._cluster = cluster
        self._namespaces = namespaces
        self._queue = queue
        self._interval = interval
        self._clock = clock
        self._remembered = remembered
        self._tried: float | None = None

    async def run(self) -> None:
        """Resync until cancelled. A list that fails is tried again soon."""
        while True:
            try:
                for key in await self._keys() | self._remembered():
                    self._queue.add(key)
            except ApiError as error:
                self._tried = self._clock()
                log.warning("resync failed", error=str(error))
                await asyncio.sleep(min(LONGEST_DELAY, self._interval))
                continue
            self._tried = self._clock()
            metrics.LAST_RESYNC.set_to_current_time()
            await asyncio.sleep(self._interval * random.uniform(0.8, 1.0))  # noqa: S311 - spreads load, guards nothing

    def health(self) -> str | None:
        """What is wrong with this process, or None. An API server that does not answer is not: it is asked again."""
        if self._tried is None or self._clock() - self._tried < 2 * self._interval + SLOWEST_SECONDS:
            return None
        return f"no resync was tried for {self._clock() - self._tried:.0f} s"

    async def _keys(self) -> set[Key]:
        found: set[Key] = set()
        for path in job_collections(self._namespaces):
            async for page in self._cluster.pages_of(SeenJob, path, metadata_only=True):
                found |= {job.key for job in page.items}
        return found
