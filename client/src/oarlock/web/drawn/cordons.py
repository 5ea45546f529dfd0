"""What is known of cordons: marks on nodes, the operator's ledger with its limits, and what jobs hold against nodes. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from oarlock.clock import parsed
from oarlock.explain.cordons import who_gave_back
from oarlock.parts import part
from oarlock.rows import FaultRow, NodeRow, fault_rows, node_rows
from oarlock_api.contract.node_marks import CORDONED, ENDED
from oarlock_api.contract.wire import integer, number, text

TRIED = timedelta(hours=1)
"""For so long the operator tries a cordon that was decided; until then it counts, and a window more."""


@dataclass(frozen=True, slots=True)
class CordonedNode:
    """A node, and the last mark that Oarlock left on it: of which attempt, and what speaks against which GPU."""

    row: NodeRow
    attempt: int | None
    gpu: str
    by: str = ""
    """Who gave it back, as far as the page did it for him: a shell leaves no name."""

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> CordonedNode | None:
        """None where the node has no GPUs, and nobody cordoned it."""
        row = next(iter(node_rows([node])), None)
        if row is None:
            return None
        annotations = part(part(node, "metadata"), "annotations")
        mark = _json(annotations.get(CORDONED)) or _json(annotations.get(ENDED))
        gpu = part(mark, "gpu")
        index = integer(gpu.get("index"))
        names = ("" if index is None else f"GPU {index}", text(gpu.get("uuid"), 64) or text(gpu.get("serial"), 64))
        attempt = integer(mark.get("attempt"))
        return cls(row, attempt, ", ".join(name for name in names if name), who_gave_back(annotations))


@dataclass(frozen=True, slots=True)
class Held:
    """What one job holds against nodes."""

    namespace: str
    job: str
    rows: tuple[FaultRow, ...]

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Held:
        """Of a TrainingJob; rows that name no node are left out."""
        metadata = part(job, "metadata")
        rows = tuple(row for row in fault_rows(job) if row.node)
        return cls(text(metadata.get("namespace"), 253), text(metadata.get("name"), 253), rows)

    def avoids(self, node: NodeRow) -> bool:
        """Whether the job still keeps off a node: what a person gave back since is dropped at the operator's next pass."""
        return any(one.node == node.name and keeps_off(one, node) for one in self.rows)


def keeps_off(held: FaultRow, node: NodeRow) -> bool:
    """Whether this row has its job keep off the node."""
    since, given = parsed(held.time or ""), parsed(node.given_back or "")
    return held.kind == "Avoided" and not (since and given and given >= since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """How many cordons count now, and how many are allowed; `breaker` says why none is done any more.

    `allowed` is of the limits and of how many nodes with GPUs there are; None where either is not known.
    """

    counted: int = 0
    by_namespace: Mapping[str, int] | None = None
    allowed: int | None = None
    share: int | None = None
    window_seconds: float | None = None
    breaker: str = ""

    @classmethod
    def of(
        cls, ledger: Mapping[str, Any] | None, breaker: Mapping[str, Any] | None, *, now: datetime, nodes: int | None
    ) -> Brakes:
        """From the two ConfigMaps, of which either may not be there; `nodes`: how many have GPUs, None if unknown."""
        data = part(ledger or {}, "data")
        limits = _json(data.get("limits"))
        window = number(limits.get("windowSeconds"))
        counted = [one for one in _entries(data.get("cordons")) if _counts(one, now, window or 3600.0)]
        reason = text(part(breaker, "data").get("reason"), 1024) or "no reason given" if breaker else ""
        return cls(
            counted=len(counted),
            by_namespace=Counter(text(one.get("job"), 600).partition("/")[0] for one in counted),
            allowed=_most(limits.get("nodes"), limits.get("percent"), nodes),
            share=_most(limits.get("namespaceNodes"), limits.get("namespacePercent"), nodes),
            window_seconds=window,
            breaker=reason,
        )


def _most(least: object, percent: object, nodes: int | None) -> int | None:
    known, share = integer(least), number(percent)
    return None if known is None or share is None or nodes is None else max(known, int(nodes * share / 100))


def _entries(said: object) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(said) if isinstance(said, str) else []
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _counts(entry: Mapping[str, Any], now: datetime, window: float) -> bool:
    """As the operator's brakes count it: from when it was done, else from when it can be done last."""
    done, time = parsed(text(entry.get("done"), 40)), parsed(text(entry.get("time"), 40))
    since = done or (time + TRIED if time else None)
    return since is not None and now < since + timedelta(seconds=window)


def _json(said: object) -> Mapping[str, Any]:
    try:
        found = json.loads(said) if isinstance(said, str) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
