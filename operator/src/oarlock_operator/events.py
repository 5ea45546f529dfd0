"""Kubernetes Events of a job: what `kubectl describe` tells. Posted after the status write that they describe.

An Event that cannot be posted is lost, and only logged: nothing may depend on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_operator.cluster import ApiError, Cluster
from oarlock_operator.observation import Job
from oarlock_operator.plan import Event

log = structlog.get_logger(__name__)

MAX_MESSAGE = 1024
"""The API's own limit of a core/v1 Event's message."""


async def post_events(cluster: Cluster, job: Job, events: Sequence[Event], *, now: datetime, instance: str) -> None:
    """Post `events` about `job`."""
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    for event in events:
        log.info("event", type=event.type.value, reason=event.reason, message=event.message)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{job.name}.", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
            },
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
        try:
            await cluster.create(f"/api/v1/namespaces/{job.namespace}/events", body)
        except ApiError as error:
            log.warning("an Event could not be posted", reason=event.reason, error=str(error))
