"""What tables and `-o json` show: flat rows, read from objects as the API server gives them.

Reading is tolerant: a field that has another type than this release expects counts as absent, so that an object of another
release never breaks a list. The schema of the rows is docs/cli-v1.schema.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oarlock.clock import when
from oarlock.in_words import verdict
from oarlock.parts import objects, part, texts
from oarlock_api.contract.node_marks import CORDONED, ENDED, GIVEN_BACK

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job in one line. `created` and `finished` are RFC 3339; what is not known is None.

    `spares` are asked for beyond `nodes`; `ready_spares` stand by, and wait for a place.
    """

    name: str
    namespace: str
    phase: str
    reason: str | None = None
    message: str | None = None
    nodes: int | None = None
    ready_nodes: int | None = None
    spares: int | None = None
    ready_spares: int | None = None
    gpus: int | None = None
    step: int | None = None
    total_steps: int | None = None
    seconds_per_step: float | None = None
    loss: float | None = None
    eta_seconds: int | None = None
    attempt: int | None = None
    restarts: int | None = None
    checkpoint_step: int | None = None
    last_fault: str | None = None
    suspended: bool = False
    deleting: bool = False
    created: str | None = None
    finished: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """An Event about a job, its pods or its claim."""

    time: str
    type: str
    reason: str
    about: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """Something that speaks against a GPU or a node. `kind` is LastFault, Strike, Cordoned or Avoided.

    `not_cordoned` is why a node that is avoided for a broken GPU is not cordoned, empty where it is, or need not be.
    """

    time: str | None
    kind: str
    node: str | None = None
    gpu: str | None = None
    xid: int | None = None
    rank: int | None = None
    count: int = 1
    message: str = ""
    not_cordoned: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node with GPUs, or one that Oarlock has cordoned. `job` and `reason` are those of the last cordon by Oarlock."""

    name: str
    gpus: int
    ready: bool
    cordoned: bool
    by_oarlock: bool = False
    job: str | None = None
    reason: str | None = None
    time: str | None = None
    given_back: str | None = None


def ready(row: JobRow) -> str | None:
    """Ready and wanted nodes, as the column of kubectl has them: 4/4, or 4/4+1 with a spare that waits."""
    if row.nodes is None:
        return None
    return f"{row.ready_nodes or 0}/{row.nodes}" + (f"+{row.ready_spares}" if row.ready_spares else "")


def job_row(job: Json) -> JobRow:
    """A TrainingJob in one line."""
    metadata, spec, status = part(job, "metadata"), part(job, "spec"), part(job, "status")
    progress, ranks = part(status, "progress"), part(status, "ranks")
    nodes, per_node = _integer(spec, "nodes"), _integer(spec, "gpusPerNode")
    fault = _text(part(status, "summary"), "lastFault")
    return JobRow(
        name=_text(metadata, "name") or "",
        namespace=_text(metadata, "namespace") or "",
        phase=_text(status, "phase") or "Pending",
        reason=_text(status, "reason"),
        message=_text(status, "message"),
        nodes=nodes,
        ready_nodes=_integer(ranks, "ready"),
        spares=_integer(spec, "spares"),
        ready_spares=_integer(ranks, "spares"),
        gpus=nodes * per_node if nodes is not None and per_node is not None else None,
        step=_integer(progress, "step"),
        total_steps=_integer(progress, "totalSteps"),
        seconds_per_step=_number(progress, "secondsPerStep"),
        loss=_number(progress, "loss"),
        eta_seconds=_integer(progress, "etaSeconds"),
        attempt=_integer(status, "attempt"),
        restarts=_integer(status, "restartCount"),
        checkpoint_step=_integer(part(status, "latestCheckpoint"), "step"),
        last_fault=fault,
        suspended=spec.get("suspend") is True,
        deleting="deletionTimestamp" in metadata,
        created=_text(metadata, "creationTimestamp"),
        finished=_text(status, "completionTime"),
    )


def event_rows(events: Iterable[Json], *, job: str) -> list[EventRow]:
    """Events of the job and of its pods, also of those that are gone; the oldest first."""
    rows = []
    for event in events:
        about = part(event, "involvedObject")
        kind, name = _text(about, "kind") or "", _text(about, "name") or ""
        if not (kind == "TrainingJob" and name == job) and not (kind == "Pod" and _is_pod_of(name, job)):
            continue
        series = part(event, "series")
        rows.append(
            EventRow(
                time=when(event),
                type=_text(event, "type") or "",
                reason=_text(event, "reason") or "",
                about=f"{kind.lower()}/{name}",
                message=" ".join((_text(event, "message") or "").split()),
                count=_integer(series, "count") or _integer(event, "count") or 1,
            )
        )
    return sorted(rows, key=lambda row: row.time)


def fault_rows(job: Json) -> list[FaultRow]:
    """All that a job's status holds against GPUs and nodes, the oldest first."""
    status = part(job, "status")
    rows = []
    if fault := part(status, "lastFault"):
        what = _text(fault, "reason") or _text(fault, "class")
        words = [what, verdict(_text(fault, "verdict") or ""), _text(fault, "action"), *texts(fault, "evidence")]
        rows.append(
            FaultRow(
                time=_text(fault, "time"),
                kind="LastFault",
                node=_text(fault, "nodeName"),
                gpu=_gpu(fault),
                xid=_integer(fault, "xid"),
                rank=_integer(fault, "rank"),
                message="; ".join(word for word in words if word),
            )
        )
    for strike in objects(status, "strikes"):
        proven = _integer(strike, "hardwareCount") or 0
        rows.append(
            FaultRow(
                time=_text(strike, "lastTime"),
                kind="Strike",
                node=_text(strike, "nodeName"),
                gpu=_text(strike, "gpuUUID"),
                xid=_integer(strike, "xid"),
                rank=_integer(strike, "rank"),
                count=_integer(strike, "count") or 1,
                message=f"{proven} of them hardly caused by a program" if proven else "",
            )
        )
    rows += [
        FaultRow(
            time=_text(node, "time"),
            kind="Cordoned",
            node=_text(node, "name"),
            gpu=_gpu(node),
            message=_text(node, "reason") or "",
        )
        for node in objects(status, "cordonedNodes")
    ]
    rows += [
        FaultRow(
            time=_text(node, "sinceTime"),
            kind="Avoided",
            node=_text(node, "name"),
            message="; not cordoned: ".join(
                words for words in (_text(node, "reason"), _text(node, "notCordoned")) if words
            ),
            not_cordoned=_text(node, "notCordoned") or "",
        )
        for node in objects(status, "avoidedNodes")
    ]
    return sorted(rows, key=lambda row: row.time or "")


def node_rows(nodes: Iterable[Json]) -> list[NodeRow]:
    """Nodes that have GPUs, are cordoned, or that Oarlock has cordoned before; those that need a look first."""
    rows = []
    for node in nodes:
        metadata, status = part(node, "metadata"), part(node, "status")
        annotations = part(metadata, "annotations")
        mark = _mark(annotations.get(CORDONED)) or _mark(annotations.get(ENDED))
        gpus = sum(
            _count(amount) for name, amount in part(status, "capacity").items() if str(name).rpartition("/")[2] == "gpu"
        )
        cordoned = part(node, "spec").get("unschedulable") is True
        if not gpus and not mark and not cordoned:
            continue
        ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in objects(status, "conditions"))
        rows.append(
            NodeRow(
                name=_text(metadata, "name") or "",
                gpus=gpus,
                ready=ready,
                cordoned=cordoned,
                by_oarlock=cordoned and CORDONED in annotations,
                job=_text(mark, "job"),
                reason=_text(mark, "reason"),
                time=_text(mark, "time"),
                given_back=_text(annotations, GIVEN_BACK),
            )
        )
    return sorted(rows, key=lambda row: (not row.cordoned, row.ready, row.name))


def _is_pod_of(pod: str, job: str) -> bool:
    """Whether it is `<job>-<attempt>-<rank>`, or a later one of that rank: pods of `flux-1` begin with `flux-1-`, too."""
    return re.fullmatch(rf"{re.escape(job)}-[0-9]+-[0-9]+(-i[0-9]+)?", pod) is not None


def _text(raw: Json, name: str) -> str | None:
    found = raw.get(name)
    return found if isinstance(found, str) and found else None


def _integer(raw: Json, name: str) -> int | None:
    found = raw.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _number(raw: Json, name: str) -> float | None:
    found = raw.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _gpu(raw: Json) -> str | None:
    gpu = part(raw, "gpu")
    index = _integer(gpu, "index")
    return _text(gpu, "uuid") or _text(gpu, "serial") or (None if index is None else str(index))


def _count(amount: object) -> int:
    return int(amount) if isinstance(amount, str) and amount.isdecimal() else 0


def _mark(said: object) -> Json:
    try:
        mark = json.loads(said) if isinstance(said, str) else {}
    except (ValueError, RecursionError):
        return {}
    return mark if isinstance(mark, dict) else {}
