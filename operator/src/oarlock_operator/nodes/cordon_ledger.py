"""The ledger of cordons: one ConfigMap beside the breaker's, in which each is entered before its node is written.

It outlives nodes, jobs and operators, so the brakes forget nothing while it is there. Two leaders, as there may be for a
moment, lose no entry: each write is preconditioned by the version that was read. A person may delete it; then only what
still stands on nodes is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from oarlock_operator.decide.brakes import counts_until
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.model.observed_nodes import Brakes, CordonMark, Ledger

ENTRIES = "cordons"
"""Key in the ConfigMap's data: a JSON array, one entry a line."""
LIMITS = "limits"
"""Key of what the brakes allow, for who reads the ledger: JSON. Nobody decides by it."""
LIMIT = 1024
"""Entries at most, well below the 1 MiB that the API server takes."""
TRIES = 5
_JOB = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")


class LedgerError(ApiError):
    """What stands in the ledger lets nobody cordon: it cannot be read, or it is full."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Ledger", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonLedger:
    """Reads and writes the ledger that `brakes` name."""

    cluster: Cluster
    brakes: Brakes

    async def read(self) -> Ledger:
        """What it holds. Raises LedgerError, ApiError."""
        try:
            found = await self.cluster.get(f"{self._collection}/{self.brakes.ledger}")
        except NotFound:
            return Ledger()
        return Ledger(self._entries(found), found["metadata"]["resourceVersion"])

    async def enter(self, marks: Iterable[CordonMark], known: Ledger, *, now: datetime) -> None:
        """Enter `marks` beside what is `known`, of which goes what no window counts any more.

        Raises Conflict where somebody else has written since, LedgerError, ApiError.
        """
        kept = {mark.key: mark for mark in known.entries if now < counts_until(mark, self.brakes)}
        kept |= {mark.key: mark for mark in marks}
        if len(kept) > LIMIT:
            raise LedgerError(f"{self.brakes.ledger} holds {LIMIT} cordons already")
        metadata = {"name": self.brakes.ledger, "namespace": self.brakes.namespace}
        lines = ",\n".join(msgspec.json.encode(mark).decode() for mark in kept.values())
        data = {ENTRIES: f"[{lines}]\n", LIMITS: self._limits()}
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        if not known.version:
            await self.cluster.create(self._collection, body)
            return
        metadata["resourceVersion"] = known.version
        try:
            await self.cluster.replace(f"{self._collection}/{self.brakes.ledger}", body)
        except NotFound as gone:
            raise Conflict(409, "Deleted", f"{self.brakes.ledger} was deleted meanwhile") from gone

    async def note(self, mark: CordonMark, *, now: datetime) -> CordonMark:
        """The entry of `mark`, which is made where there is none, and told that it was done where `mark` says so.

        Raises LedgerError, ApiError.
        """
        for left in reversed(range(TRIES)):
            known = await self.read()
            before = next((one for one in known.entries if one.key == mark.key), None)
            if before is not None and (before.done is not None or mark.done is None):
                return before
            entry = replace(before, done=mark.done) if before else mark
            try:
                await self.enter([entry], known, now=now)
            except Conflict:
                if not left:
                    raise
                continue
            return entry
        raise AssertionError("the last try returns or raises")

    def _limits(self) -> str:
        limits = self.brakes
        told = {
            "nodes": limits.max_nodes,
            "percent": limits.max_percent,
            "namespaceNodes": limits.namespace_max_nodes,
            "namespacePercent": limits.namespace_max_percent,
            "windowSeconds": limits.window_seconds,
        }
        return msgspec.json.encode(told).decode()

    @property
    def _collection(self) -> str:
        return f"/api/v1/namespaces/{self.brakes.namespace}/configmaps"

    def _entries(self, found: Json) -> tuple[CordonMark, ...]:
        said = (found.get("data") or {}).get(ENTRIES) or "[]"
        try:
            entries = msgspec.json.decode(said, type=tuple[CordonMark, ...])
            why = next(filter(None, map(_fault, entries)), "")
        except (ValueError, TypeError, RecursionError) as error:
            entries, why = (), str(error)
        if why or len(entries) > LIMIT:
            reset = f"kubectl delete configmap {self.brakes.ledger} -n {self.brakes.namespace}"
            raise LedgerError(
                f"{self.brakes.ledger} is no ledger of cordons ({why or f'{len(entries)} entries'}); to begin anew: {reset}"
            )
        return entries


def _fault(mark: CordonMark) -> str:
    if not _JOB.fullmatch(mark.job):
        return f"{mark.job[:64]!r} is no job's namespace and name"
    return "" if mark.time.tzinfo and (mark.done or mark.time).tzinfo else "a time has no time zone"
