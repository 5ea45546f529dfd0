"""kopf as the watch of nodes, in a thread and an event loop of its own.

No create, update, delete, timer or daemon handlers, no index, no finalizer, no state in kopf's memory, no writes: events
go to a sink in the loop of whoever started it. A loop of its own, because kopf takes every task of its loop that is younger
than itself for its own and ends it when it ends, and because it ends at errors that are over in a moment: then it is
started again, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from oarlock_operator.kube.outages import FIRST_DELAY, LONGEST_DELAY

NodeSink = Callable[[str | None, dict[str, Any]], None]
"""Takes the kind of event (None for a node that was there) and the node."""
LEAVE_SECONDS = 2.0
"""kopf is not waited for longer: it holds nothing that anybody needs."""


async def watch_nodes(configuration: Configuration, sink: NodeSink) -> None:
    """Watch until cancelled. Raises what kopf ended with."""
    home = asyncio.get_running_loop()
    ended: asyncio.Future[None] = home.create_future()
    begun: asyncio.Future[asyncio.Task[Any] | None] = home.create_future()

    def tell(kind: str | None, node: dict[str, Any]) -> None:
        home.call_soon_threadsafe(sink, kind, node)

    async def life() -> None:
        home.call_soon_threadsafe(begun.set_result, asyncio.current_task())
        await kopf.operator(
            registry=_registry(configuration, home, tell),
            settings=_settings(),
            # Named, because kopf would look the user up, and an image's user need not be in /etc/passwd.
            identity="oarlock-operator",  # type: ignore[arg-type]
            standalone=True,
            clusterwide=True,
        )

    def run() -> None:
        error: BaseException | None = None
        try:
            asyncio.run(life())
        except BaseException as caught:  # noqa: BLE001 - it is raised in the loop that waits for it
            error = caught
        home.call_soon_threadsafe(_end, ended, error)

    # A daemon: whatever kopf is at, the process may end.
    threading.Thread(target=run, name="kopf", daemon=True).start()
    try:
        await asyncio.shield(ended)
    finally:
        if not ended.done():
            # A callback, since the thread may not have begun yet, and would watch for ever.
            begun.add_done_callback(_leave)
            await asyncio.wait([ended], timeout=LEAVE_SECONDS)


def _leave(begun: asyncio.Future[asyncio.Task[Any] | None]) -> None:
    if task := begun.result():
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has just ended by itself
            task.get_loop().call_soon_threadsafe(task.cancel)


def _end(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.cancelled():
        return
    if isinstance(error, Exception):
        ended.set_exception(error)
        ended.exception()  # whoever has stopped waiting need not be told
    else:
        ended.set_result(None)


def _registry(configuration: Configuration, home: asyncio.AbstractEventLoop, tell: NodeSink) -> kopf.OperatorRegistry:
    handlers = kopf.OperatorRegistry()

    async def token() -> str:
        found: Any = configuration.get_api_key_with_prefix("BearerToken")
        return str(await found if asyncio.iscoroutine(found) else found or "")

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        # In the loop that the configuration belongs to: it may run a program for a fresh token there.
        given = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(token(), home))
        scheme, _separator, secret = given.partition(" ")
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

    @kopf.on.event("", "v1", "nodes", registry=handlers)
    async def node_event(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002
        tell(type, dict(body))

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


class Patience:
    """Delays between tries, without an end: kopf would give up after a minute, and the API server may be away for an hour."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY), itertools.repeat(LONGEST_DELAY))


def _settings() -> kopf.OperatorSettings:
    """Kopf's settings, each with its reason."""
    ours = kopf.OperatorSettings()
    # Nodes are there, whatever else is; scanning would need rights on CRDs and namespaces.
    ours.scanning.disabled = True
    # A Lease decides who works, not kopf's peering, which has no fencing.
    ours.peering.standalone = True
    ours.posting.enabled = False
    ours.persistence.diffbase_storage = NoDiffs()
    # Handlers only pass on: nothing of theirs is worth waiting for when the process ends.
    ours.queueing.idle_timeout = 0.5
    ours.queueing.exit_timeout = 0.1
    ours.watching.chunk_size = 500
    ours.watching.connect_timeout = 10
    ours.watching.server_timeout = 290
    ours.networking.request_timeout = 30
    ours.networking.connect_timeout = 10
    ours.networking.error_backoffs = Patience()
    # It warns that it takes no signals in a thread: they are not its own.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    return ours
