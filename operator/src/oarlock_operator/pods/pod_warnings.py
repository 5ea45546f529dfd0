"""Why a placed pod does not start: a kubelet tells of a volume that it cannot mount in Events only, never in the pod.

Read only for pods that have hung for a while, and for few of them: Events are many, and all ranks hang alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import Struct

from oarlock_api.contract.wire import text
from oarlock_api.history import RecoveryStage
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.observation import Job, Pod

AFTER = timedelta(seconds=15)
"""A volume that is only slow needs no words."""
MOST = 3
MOST_PAGES = 4
"""Two thousand Events of one pod are enough to find one that says what is wrong."""
OVER = "FailedScheduling"
"""The scheduler's warning about a pod that has its node by now."""


async def with_pod_warnings(cluster: Cluster, job: Job, pods: Sequence[Pod], *, now: datetime) -> list[Pod]:
    """The pods, some that do not start with the newest warning about them as their obstacle. Raises ApiError."""
    recovery = job.status.recovery
    if recovery.stage != RecoveryStage.START or now - (recovery.stage_start_time or now) < AFTER:
        return list(pods)
    mute = [pod for pod in pods if pod.scheduled and not (pod.started or pod.stopped or pod.obstacle)][:MOST]
    words = await asyncio.gather(*(_newest_warning(cluster, job.namespace, pod) for pod in mute))
    said = {pod.uid: word for pod, word in zip(mute, words, strict=True) if word}
    return [replace(pod, obstacle=said[pod.uid], by_event=True) if pod.uid in said else pod for pod in pods]


async def _newest_warning(cluster: Cluster, namespace: str, pod: Pod) -> str:
    about = f"involvedObject.uid={pod.uid},type=Warning"
    newest, read = _Warning(), 0
    async for page in cluster.pages_of(_Warning, f"/api/v1/namespaces/{namespace}/events", fieldSelector=about):
        newest = max((*(event for event in page.items if event.reason != OVER), newest), key=_Warning.when)
        read += 1
        if read == MOST_PAGES:
            break
    return f"{text(newest.reason, 64)}: {text(newest.message, 512)}" if newest.reason else ""


class _Warning(Struct, frozen=True, rename="camel"):
    """Of an Event, what is told. Each of these may be null, by who wrote it."""

    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    def when(self) -> str:
        """Sorts by time."""
        return self.last_timestamp or self.event_time or ""
