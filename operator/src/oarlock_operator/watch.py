"""kopf as transport: watch streams that put a key on a work queue, and nothing else.

No create, update, delete, timer or daemon handlers, no index, no finalizer, no state in kopf's memory: kopf forgets deletes
that happen while a stream is down, so a watch is a hint to look and never a source of truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from oarlock_api.contract.names import GROUP, PLURAL, VERSION, Label
from oarlock_operator.gone import GoneJobs
from oarlock_operator.nodes import NodeSightings
from oarlock_operator.observation import Key
from oarlock_operator.pace import Pace
from oarlock_operator.pod_facts import RawPod
from oarlock_operator.sightings import Sightings
from oarlock_operator.workqueue import WorkQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Where events go. `node_queue` None: nodes may not be watched."""

    jobs: WorkQueue[Key]
    node_queue: WorkQueue[str] | None
    sightings: Sightings
    node_sightings: NodeSightings
    pace: Pace
    gone: GoneJobs


def pod_event(sinks: Sinks, kind: str, pod: RawPod) -> None:
    """Something happened to a pod: its job is looked at, at once or in a moment."""
    if sinks.gone.holds(pod.label(Label.JOB_UID)):
        return
    key = (pod.metadata.namespace, pod.label(Label.JOB))
    ended = sinks.sightings.note(pod, deleted=kind == "DELETED")
    attempt, waiting = pod.number(Label.ATTEMPT), len(sinks.jobs)
    sinks.jobs.add_after(key, sinks.pace.delay(key, attempt=attempt, ended=ended, waiting=waiting))


def job_seen(sinks: Sinks, kind: str | None, key: Key, meta: Mapping[str, Any]) -> None:
    """Something happened to a job. What we wrote ourselves is no news; of one that goes, its end is the last."""
    if kind == "DELETED" or "deletionTimestamp" in meta:
        sinks.gone.note(meta["uid"])
    if not sinks.pace.own(key, meta.get("resourceVersion", "")):
        sinks.jobs.add(key)


def registry(sinks: Sinks, configuration: Configuration, *, started: Callable[[], None]) -> kopf.OperatorRegistry:
    """Handlers that enqueue. Once kopf is up, `started` is called in the loop that kopf runs in."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.startup(registry=handlers)
    async def startup(**_: Any) -> None:
        started()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        token = configuration.get_api_key_with_prefix("BearerToken")
        if asyncio.iscoroutine(token):
            token = await token
        scheme, _separator, secret = (token or "").partition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            ca_data=None if configuration.ssl_ca_cert else configuration.ca_cert_data,
            insecure=not configuration.verify_ssl,
            scheme=scheme if secret else None,
            token=secret or None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
        )

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def job_event(
        type: str | None,  # noqa: A002 - kopf's name
        namespace: str | None,
        name: str,
        meta: kopf.Meta,
        **_: Any,
    ) -> None:
        job_seen(sinks, type, (namespace or "", name), meta)

    if (nodes := sinks.node_queue) is not None:

        @kopf.on.event("", "v1", "nodes", registry=handlers)
        async def node_event(type: str | None, body: kopf.Body, name: str, **_: Any) -> None:  # noqa: A002
            if sinks.node_sightings.note(dict(body), deleted=type == "DELETED"):
                nodes.add(name)

    return handlers


class NoDiffs(kopf.DiffBaseStorage):
    """Nothing here asks what changed in an object; kopf would copy each one to be able to tell: half of an event's cost."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """No essence."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """No earlier essence."""

    def store(self, **_: Any) -> None:
        """Kopf calls this for change handlers only, of which there are none."""


def settings() -> kopf.OperatorSettings:
    """Kopf's settings, each with its reason."""
    ours = kopf.OperatorSettings()
    # The CRD is checked at start by us; scanning would need rights on CRDs and namespaces.
    ours.scanning.disabled = True
    # A Lease decides who works, not kopf's peering, which has no fencing.
    ours.peering.standalone = True
    ours.posting.enabled = False
    ours.persistence.diffbase_storage = NoDiffs()
    # Handlers only enqueue: nothing of theirs is worth waiting for when the process ends.
    ours.queueing.idle_timeout = 0.5
    ours.queueing.exit_timeout = 0.1
    ours.watching.chunk_size = 500
    ours.watching.connect_timeout = 10
    ours.watching.server_timeout = 290
    ours.networking.request_timeout = 30
    ours.networking.connect_timeout = 10
    return ours
