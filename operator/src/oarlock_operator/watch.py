"""kopf as transport: watch streams that put a job's key on the work queue, and nothing else.

No create, update, delete, timer or daemon handlers, no index, no finalizer, no state in kopf's memory: kopf forgets deletes
that happen while a stream is down, so a watch is a hint to look and never a source of truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from oarlock_api.contract.names import GROUP, PLURAL, VERSION, Label
from oarlock_operator.observation import Key
from oarlock_operator.sightings import Sightings


def registry(
    add: Callable[[Key], None],
    sightings: Sightings,
    configuration: Configuration,
    *,
    started: Callable[[], None],
) -> kopf.OperatorRegistry:
    """Handlers that enqueue. `add` and, once kopf is up, `started` are called in the loop that kopf runs in."""
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
    async def job_event(namespace: str | None, name: str, **_: Any) -> None:
        add((namespace or "", name))

    @kopf.on.event("", "v1", "pods", labels={Label.JOB.value: kopf.PRESENT}, registry=handlers)
    async def pod_event(  # kopf passes these by name
        type: str | None,  # noqa: A002
        body: kopf.Body,
        namespace: str | None,
        labels: kopf.Labels,
        **_: Any,
    ) -> None:
        sightings.note(dict(body), deleted=type == "DELETED")
        add((namespace or "", labels[Label.JOB.value]))

    return handlers


def settings() -> kopf.OperatorSettings:
    """Kopf's settings, each with its reason."""
    ours = kopf.OperatorSettings()
    # The CRD is checked at start by us; scanning would need rights on CRDs and namespaces.
    ours.scanning.disabled = True
    # A Lease decides who works, not kopf's peering, which has no fencing.
    ours.peering.standalone = True
    ours.posting.enabled = False
    # Pods of others never leave the API server.
    ours.watching.label_selectors["", "v1", "pods"] = Label.JOB.value
    # Handlers only enqueue: nothing of theirs is worth waiting for when the process ends.
    ours.queueing.idle_timeout = 0.5
    ours.queueing.exit_timeout = 0.1
    ours.watching.chunk_size = 500
    ours.watching.connect_timeout = 10
    ours.watching.server_timeout = 290
    ours.networking.request_timeout = 30
    ours.networking.connect_timeout = 10
    return ours
