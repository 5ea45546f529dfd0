"""The watch of pods: one stream of every pod of every job, read by few and cheap steps.

kopf watches TrainingJobs and nodes. Pods have a stream of their own, because a gang of a thousand has thousands of events,
and kopf spends milliseconds on each (docs/decisions/0005). Like any watch it is a hint to look: what is missed while it is
down is found by listing anew, and by every pass's own live reads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import structlog

from oarlock_api.contract.names import Label
from oarlock_operator.api_error import ApiError, NotFound
from oarlock_operator.cluster import Cluster
from oarlock_operator.pod_facts import RawPod

log = structlog.get_logger(__name__)

SERVER_SECONDS = 290
"""The server ends a watch after this long; load balancers drop idle ones after five minutes."""
FIRST_DELAY, LAST_DELAY = 0.5, 30.0

Sink = Callable[[str, RawPod], None]
"""Takes the kind of event (ADDED, MODIFIED, DELETED; LISTED for one that was there) and the pod."""


async def watch_pods(cluster: Cluster, namespaces: Sequence[str], sink: Sink) -> None:
    """Watch the pods of jobs, in the namespaces named or everywhere, until cancelled."""
    paths = [f"/api/v1/namespaces/{name}/pods" for name in namespaces] or ["/api/v1/pods"]
    async with asyncio.TaskGroup() as group:
        for path in paths:
            group.create_task(_watch_for_ever(cluster, path, sink))


async def _watch_for_ever(cluster: Cluster, path: str, sink: Sink) -> None:
    version, delay = "", FIRST_DELAY
    while True:
        try:
            if not version:
                version = await _list(cluster, path, sink)
            before = version
            async for event in cluster.watch(
                path, labelSelector=Label.JOB.value, resourceVersion=version, timeout_seconds=SERVER_SECONDS
            ):
                pod: RawPod = event.read(RawPod)
                # At each event: a stream that is cut, as load balancers do, goes on from here and at once.
                version, delay = pod.metadata.resource_version, FIRST_DELAY
                if event.what != "BOOKMARK":
                    sink(event.what, pod)
            delay = FIRST_DELAY
            if version == before:
                # Whoever ends streams that told nothing, not even a bookmark, must not be asked without a pause.
                await asyncio.sleep(FIRST_DELAY)
        except ApiError as error:
            # 410: the server has forgotten that version. Anything else may be over in a moment.
            version = "" if isinstance(error, NotFound) else version
            log.info("the watch of pods begins anew", path=path, error=str(error), in_seconds=round(delay, 1))
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
            delay = min(2 * delay, LAST_DELAY)


async def _list(cluster: Cluster, path: str, sink: Sink) -> str:
    version = ""
    async for page in cluster.pages_of(RawPod, path, labelSelector=Label.JOB.value):
        for pod in page.items:
            sink("LISTED", pod)
        version = page.metadata.resource_version
    return version
