"""A watch of one collection, for ever: what is there, then what happens, over all that can go wrong in between.

Like any watch it is a hint to look: what is missed while it is down is found by listing anew, and by every pass's own live
reads. An object that cannot be read is told of once, and the watch goes on behind it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog
from msgspec import Struct, field

from oarlock_operator.kube.api_error import ApiError, Malformed, NotFound
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.decoding import WatchEvent, decoded
from oarlock_operator.kube.outages import FIRST_DELAY, longer

log = structlog.get_logger(__name__)

SERVER_SECONDS = 290
"""The server ends a watch after this long; load balancers drop idle ones after five minutes."""

Seen = TypeVar("Seen")


class _Versioned(Struct, frozen=True):
    resource_version: str = field(default="", name="resourceVersion")


class _Anything(Struct, frozen=True):
    metadata: _Versioned = _Versioned()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionWatch(Generic[Seen]):
    """What to watch, of each object what to read, and who is told.

    `sink` takes the kind of event (ADDED, MODIFIED, DELETED; LISTED for one that was there) and the object.
    """

    cluster: Cluster
    paths: Sequence[str]
    kind: type[Seen]
    sink: Callable[[str, Seen], None]
    selector: str = ""
    metadata_only: bool = False

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for path in self.paths:
                group.create_task(self._watch(path))

    async def _watch(self, path: str) -> None:
        version, delay = "", FIRST_DELAY
        while True:
            try:
                if not version:
                    version = await self._list(path)
                before = version
                async for event in self._events(path, version):
                    # At each event: a stream that is cut, as load balancers do, goes on from here and at once.
                    version, delay = self._tell(event), FIRST_DELAY
                delay = FIRST_DELAY
                if version == before:
                    # Whoever ends streams that told nothing, not even a bookmark, must not be asked without a pause.
                    await asyncio.sleep(FIRST_DELAY)
            except ApiError as error:
                # 410: the server has forgotten that version. Anything else may be over in a moment.
                version = "" if isinstance(error, NotFound | Malformed) else version
                log.info("a watch begins anew", path=path, error=str(error), in_seconds=round(delay, 1))
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
                delay = longer(delay)

    def _tell(self, event: WatchEvent) -> str:
        """Pass an event on; the version that it leads to."""
        event.check()
        version = decoded(event.object, _Anything, "an event's object").metadata.resource_version
        if event.what != "BOOKMARK":
            try:
                seen = event.read(self.kind)
            except Malformed as error:
                self.cluster.unreadable.note(event.object, error)
            else:
                self.sink(event.what, seen)
        return version

    def _events(self, path: str, version: str) -> AsyncIterator[WatchEvent]:
        return self.cluster.watch(
            path,
            timeout_seconds=SERVER_SECONDS,
            metadata_only=self.metadata_only,
            resourceVersion=version,
            **self._query(),
        )

    async def _list(self, path: str) -> str:
        version = ""
        pages = self.cluster.pages_of(self.kind, path, metadata_only=self.metadata_only, **self._query())
        async for page in pages:
            for seen in page.items:
                self.sink("LISTED", seen)
            version = page.metadata.resource_version
        return version

    def _query(self) -> dict[str, str]:
        return {"labelSelector": self.selector} if self.selector else {}
