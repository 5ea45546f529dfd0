"""Leadership: a coordination.k8s.io Lease gates the process, so that two operators never work at once.

The holder renews; whoever sees no renewal for the lease's duration, by its own monotonic clock, takes over. A holder that
could not renew in time stops before anybody else can have taken over, and no write leaves a process that may not lead any
more (cluster.py asks `may_act` as it hands each one to the network). Every write of the Lease is preconditioned by its
resourceVersion. A process that lost the Lease is a candidate like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

import structlog

from oarlock_operator import metrics
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.kube.outages import LONGEST_DELAY

log = structlog.get_logger(__name__)

DELETED = "nobody, it was deleted"


class LeadershipLost(Exception):  # noqa: N818 - it is an event more than an error
    """The Lease could not be renewed in time: all work must end at once."""


@dataclass(slots=True)
class Leader:
    """A candidate for one Lease. `clock` is monotonic seconds, `wall` the time written for people to read."""

    cluster: Cluster
    namespace: str
    name: str
    identity: str
    seconds: float
    clock: Callable[[], float]
    wall: Callable[[], datetime]
    _seen: tuple[str, float] = ("", 0.0)
    _renewed: float = -math.inf
    _held: Json | None = None
    """The Lease as last written by us: renewing it takes one request, and fails if anybody else wrote since."""

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        told = False
        if self._seen[0] == f"{DELETED}/":
            # Whoever took it away from us may be about to remove everything.
            await asyncio.sleep(self.seconds)
        pause = min(self.seconds / 7.5, LONGEST_DELAY)
        asked = self.clock()
        while not await self._try(patience=self.seconds / 4):
            if not told:
                log.info("waiting for the Lease", lease=f"{self.namespace}/{self.name}")
                told = True
            await asyncio.sleep(max(0.0, asked + pause - self.clock()))
            asked = self.clock()
        metrics.LEADER.set(1)
        log.info("leading", lease=f"{self.namespace}/{self.name}", identity=self.identity)

    def may_act(self) -> bool:
        """Whether the Lease is surely ours still: nobody else can take it for another third of its time."""
        return self.clock() - self._renewed < self.seconds * 2 / 3

    async def hold(self) -> None:
        """Renew until cancelled. Raises LeadershipLost when the Lease is another's or could not be renewed in time."""
        granted = True
        while True:
            # Seldom while all is well: each renewal wakes an idle process. Often after a failure. Counted from the last
            # renewal's beginning, since a slow server's answer has taken its time already.
            due = self._renewed + self.seconds / 3 if granted else self.clock() + self.seconds / 7.5
            await asyncio.sleep(max(0.0, due - self.clock()))
            left = self._renewed + self.seconds * 2 / 3 - self.clock()
            granted = False
            # An API server that does not answer at all must not make us sleep through our own deadline.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left)):
                    granted = await self._try(led=True)
            if not granted and (self._held_by_another() or not self.may_act()):
                metrics.LEADER.set(0)
                self._renewed = -math.inf
                raise LeadershipLost(f"the Lease {self.namespace}/{self.name} was lost: another process may lead now")

    async def release(self) -> None:
        """Hand the Lease over, so that a successor need not wait. Best effort: it runs out by itself."""
        self._renewed = -math.inf
        with contextlib.suppress(ApiError):
            lease = await self.cluster.get(self._path)
            if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                lease["spec"]["holderIdentity"] = ""
                await self.cluster.replace(self._path, lease)
        metrics.LEADER.set(0)

    @property
    def _collection(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def _path(self) -> str:
        return f"{self._collection}/{self.name}"

    def _held_by_another(self) -> bool:
        holder = self._seen[0].partition("/")[0]
        return bool(holder) and holder != self.identity

    async def _try(self, *, led: bool = False, patience: float | None = None) -> bool:
        """Take or renew the Lease; False when it is another's, the API server did not agree, or who `led` finds it gone.

        `patience`: seconds for each request. One that hangs must not keep a candidate from asking anew.
        """
        # Counted from before the request: the others count from when they see it done.
        asked = self.clock()
        try:
            try:
                lease = self._held
                if lease is None:
                    lease = await asyncio.wait_for(self.cluster.get(self._path), patience)
            except NotFound:
                if led:
                    # Taken away from its holder, as at an uninstall: whoever is to lead next makes it anew.
                    self._seen = (f"{DELETED}/", asked)
                    return False
                fresh = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": self.namespace},
                    "spec": self._spec(transitions=0, since=None),
                }
                self._mark_renewed(
                    asked, await asyncio.wait_for(self.cluster.create(self._collection, fresh), patience)
                )
                return True
            spec: dict[str, Any] = lease.get("spec") or {}
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self.identity) and not self._run_out(lease, holder):
                return False
            mine = holder == self.identity
            renewed = self._spec(
                transitions=int(spec.get("leaseTransitions") or 0) + (0 if mine else 1),
                since=spec.get("acquireTime") if mine else None,
            )
            written = await asyncio.wait_for(self.cluster.replace(self._path, {**lease, "spec": renewed}), patience)
        except (Conflict, NotFound):
            # Somebody else wrote it or took it away: look again, at once if it was thought to be ours.
            lost, self._held = self._held, None
            return lost is not None and await self._try(led=led, patience=patience)
        except (ApiError, TimeoutError) as error:
            self._held = None
            log.warning("the Lease could not be renewed", error=str(error))
            return False
        self._mark_renewed(asked, written)
        return True

    def _mark_renewed(self, asked: float, lease: Json) -> None:
        self._held = lease
        self._seen = (f"{self.identity}/", asked)
        self._renewed = asked

    def _run_out(self, lease: Json, holder: str) -> bool:
        """Whether another's Lease stood unchanged for its whole duration, on our clock; its own says how long that is."""
        mark = f"{holder}/{lease['metadata']['resourceVersion']}"
        if self._seen[0] != mark:
            self._seen = (mark, self.clock())
        return self.clock() - self._seen[1] > float(lease["spec"].get("leaseDurationSeconds") or self.seconds)

    def _spec(self, *, transitions: int, since: str | None) -> dict[str, Any]:
        now = self.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": ceil(self.seconds),
            "acquireTime": since or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
