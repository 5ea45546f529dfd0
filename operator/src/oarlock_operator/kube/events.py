"""Kubernetes Events of a job: what `kubectl describe` tells. Queued after the status write that they describe.

They are posted by a task of their own, so that no gang waits for its Events; one that cannot be posted, or finds the queue
full, is lost, and only logged: nothing may depend on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import structlog

from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.observation import Job
from oarlock_operator.model.plan import Event

log = structlog.get_logger(__name__)

MAX_MESSAGE = 1024
"""The API's own limit of a core/v1 Event's message."""
CLUSTER_WIDE = "default"
MAX_QUEUED = 4096
MOST_PER_SECOND = 10


class EventPoster:
    """Posts Events in their order. `instance` names this process in them."""

    def __init__(self, cluster: Cluster, *, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(MAX_QUEUED)

    def post(self, job: Job, events: Sequence[Event], *, now: datetime) -> None:
        """Have `events` about `job` posted soon."""
        self.post_about(_about(job), events, now=now)

    def post_about(self, about: dict[str, Any], events: Sequence[Event], *, now: datetime) -> None:
        """Have `events` about an object, as an Event names it, posted soon."""
        for event in events:
            log.info("event", type=event.type.value, reason=event.reason, message=event.message)
            try:
                body = event_body(about, event, now=now, instance=self._instance)
                self._queue.put_nowait((body["metadata"]["namespace"], body))
            except asyncio.QueueFull:
                log.warning("too many Events at once, one is left out", reason=event.reason)

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            await self._post(*await self._queue.get())
            if not self._queue.empty():
                # A thousand jobs that start at once need their pods sooner than their Events.
                await asyncio.sleep(1 / MOST_PER_SECOND)

    async def flush(self) -> None:
        """Post what is queued."""
        while not self._queue.empty():
            await self._post(*self._queue.get_nowait())

    async def _post(self, namespace: str, body: dict[str, Any]) -> None:
        try:
            await self._cluster.create(f"/api/v1/namespaces/{namespace}/events", body)
        except ApiError as error:
            log.warning("an Event could not be posted", reason=body["reason"], error=str(error))


def event_body(about: dict[str, Any], event: Event, *, now: datetime, instance: str) -> dict[str, Any]:
    """A core/v1 Event about an object; one about a cluster-wide object lies in `default`, as Kubernetes' own do."""
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name']}.", "namespace": about.get("namespace", CLUSTER_WIDE)},
        "involvedObject": about,
        "type": event.type.value,
        "reason": event.reason,
        "message": event.message[:MAX_MESSAGE],
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": "oarlock-operator"},
        "reportingComponent": "oarlock.dev/operator",
        "reportingInstance": instance[:128],
    }


def _about(job: Job) -> dict[str, Any]:
    known = {"namespace": job.namespace, "name": job.name, "uid": job.uid}
    return {"apiVersion": API_VERSION, "kind": KIND, **known}
