"""The fault report: what an agent writes to the termination message the moment the verdict is known.

The kubelet keeps at most 4096 bytes of it. The reader takes the node from the pod's own spec, never from the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oarlock_api.contract.wire import WireError, encodable, finite, integer, number, parse_object, text

REPORT_VERSION = 1
MAX_BYTES = 4096
MAX_EVIDENCE = 8
CLAIMED = frozenset({"webhook"})
"""Probes that only repeat what a program says: it may be wrong, or lie, so no node is taken away for it."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Which GPU, by all the names that people look for it under."""

    index: int
    uuid: str = ""
    serial: str = ""
    pci_bus_id: str = ""
    name: str = ""

    def to_fields(self) -> dict[str, Any]:
        """As JSON writes it, bounded."""
        return {
            "index": self.index,
            "uuid": self.uuid[:64],
            "serial": self.serial[:64],
            "pciBusId": self.pci_bus_id[:32],
            "name": self.name[:64],
        }

    @staticmethod
    def of(raw: object) -> Gpu | None:
        """Read what JSON says; None where it names no GPU."""
        if not isinstance(raw, dict) or (index := integer(raw.get("index"))) is None:
            return None
        return Gpu(
            index=index,
            uuid=text(raw.get("uuid"), 64),
            serial=text(raw.get("serial"), 64),
            pci_bus_id=text(raw.get("pciBusId"), 32),
            name=text(raw.get("name"), 64),
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reading that the verdict rests on."""

    probe: str
    value: float | str
    at: str

    @property
    def reading(self) -> str:
        """The value for people: JSON makes 79.0 of an XID, and whole numbers are told without a point."""
        return f"{self.value:.0f}" if isinstance(self.value, float) and self.value.is_integer() else str(self.value)


def is_proven(evidence: Iterable[Evidence]) -> bool:
    """Whether a driver speaks in it, and not a program alone."""
    return any(one.probe not in CLAIMED for one in evidence)


@dataclass(frozen=True, slots=True)
class Report:
    """One ending of one pod, in its own words.

    `code` is the exit code that follows, `failure_class` its class, `detected_at` RFC 3339 in UTC on the pod's clock.
    `leaving_seconds`: of ranks that trained, saved and left on request, the time from that request until all had ended.
    """

    attempt: int
    rank: int
    pod_uid: str
    failure_class: str
    code: int
    detected_at: str
    summary: str
    step: int | None = None
    checkpoint_step: int | None = None
    gpu: Gpu | None = None
    xid: int | None = None
    evidence: tuple[Evidence, ...] = ()
    first_error_rank: int | None = None
    leaving_seconds: float | None = None

    @property
    def proven(self) -> bool:
        """Whether a GPU's driver speaks in it, and not a program alone."""
        return is_proven(self.evidence)

    def to_json(self) -> str:
        """One JSON object of at most 4096 bytes: evidence goes first, then the summary's tail."""
        evidence, summary = self.evidence[:MAX_EVIDENCE], self.summary[:1500]
        while True:
            written = encodable(json.dumps(self._fields(evidence, summary), ensure_ascii=False, separators=(",", ":")))
            if len(written.encode()) <= MAX_BYTES:
                return written
            if evidence:
                evidence = evidence[:-1]
            else:
                summary = summary[: len(summary) // 2]

    def _fields(self, evidence: tuple[Evidence, ...], summary: str) -> dict[str, Any]:
        return {
            "version": REPORT_VERSION,
            "attempt": self.attempt,
            "rank": self.rank,
            "podUid": self.pod_uid[:64],
            "class": self.failure_class[:32],
            "code": self.code,
            "detectedAt": self.detected_at[:40],
            "step": self.step,
            "checkpointStep": self.checkpoint_step,
            "summary": summary,
            "gpu": self.gpu.to_fields() if self.gpu else None,
            "xid": self.xid,
            "evidence": [{"probe": e.probe[:64], "value": _value(e.value), "at": e.at[:40]} for e in evidence],
            "firstErrorRank": self.first_error_rank,
            **({} if self.leaving_seconds is None else {"leavingSeconds": finite(self.leaving_seconds)}),
        }


def _value(value: float | str) -> float | str | None:
    return value[:256] if isinstance(value, str) else finite(value)


def parse_report(message: str) -> Report:
    """Read a termination message. Unknown fields and newer versions are tolerated, every field is bounded.

    Raises WireError where it is no report at all: then the exit code alone speaks.
    """
    raw = parse_object(message, max_bytes=MAX_BYTES)
    attempt, rank, code = (integer(raw.get(key)) for key in ("attempt", "rank", "code"))
    if attempt is None or rank is None or code is None:
        raise WireError("attempt, rank or code is missing")
    evidence = raw.get("evidence")
    return Report(
        attempt=attempt,
        rank=rank,
        pod_uid=text(raw.get("podUid"), 64),
        failure_class=text(raw.get("class"), 32),
        code=code,
        detected_at=text(raw.get("detectedAt"), 40),
        summary=text(raw.get("summary"), 1500),
        step=integer(raw.get("step")),
        checkpoint_step=integer(raw.get("checkpointStep")),
        gpu=Gpu.of(raw.get("gpu")),
        xid=integer(raw.get("xid")),
        evidence=tuple(_evidence(evidence[:MAX_EVIDENCE]) if isinstance(evidence, list) else ()),
        first_error_rank=integer(raw.get("firstErrorRank")),
        leaving_seconds=number(raw.get("leavingSeconds")),
    )


def _evidence(items: list[Any]) -> list[Evidence]:
    found = []
    for item in items:
        if isinstance(item, dict) and (probe := text(item.get("probe"), 64)):
            value = item.get("value")
            reading = text(value) if isinstance(value, str) else number(value)
            if reading is not None:
                found.append(Evidence(probe=probe, value=reading, at=text(item.get("at"), 40)))
    return found
