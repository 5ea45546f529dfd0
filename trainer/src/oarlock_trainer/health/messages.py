"""What the monitor tells the agent: one JSON line per event, over a pipe."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.report import Gpu
from oarlock_api.contract.wire import WireError, parse_object, text
from oarlock_trainer.health.pace import GpuPace, parse_pace
from oarlock_trainer.health.symptom import Symptom, parse_symptom

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LINE = 16384
"""Sixteen GPUs with all their names."""
ASK_PACE = signal.SIGUSR1
"""Asks the monitor how fast its GPUs run. It may be sent once the monitor has told of itself."""


class News(StrEnum):
    """What a line tells."""

    BEAT = "beat"
    """No fields. A round of readings is done, and each GPU had something to say."""
    INVENTORY = "inventory"
    """gpus: those of this pod."""
    COVERAGE = "coverage"
    """probes: name -> whether all GPUs answer it."""
    SYMPTOM = "symptom"
    PACE = "pace"
    """pace: how fast each GPU runs, told where the agent has asked by ASK_PACE."""
    BLIND = "blind"
    """why: a GPU, or all of them, can't be seen now. The monitor ends, or tries again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, understood; what does not belong to its kind is empty."""

    news: News
    gpus: tuple[Gpu, ...] = ()
    probes: tuple[tuple[str, bool], ...] = ()
    symptom: Symptom | None = None
    pace: tuple[GpuPace, ...] = ()
    why: str = ""


def encode(news: News, fields: Mapping[str, Any] | None = None) -> bytes:
    """One line."""
    return json.dumps({**(fields or {}), "news": str(news)}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Line | None:
    """Read one line, None where it is none."""
    try:
        raw = parse_object(line.decode(errors="replace"), max_bytes=MAX_LINE)
    except WireError:
        return None
    if (news := raw.get("news")) not in frozenset(News):
        return None
    gpus, probes, pace = raw.get("gpus"), raw.get("probes"), raw.get("pace")
    return Line(
        news=News(news),
        gpus=tuple(gpu for one in (gpus if isinstance(gpus, list) else ()) if (gpu := Gpu.of(one))),
        probes=tuple((str(name), known is True) for name, known in probes.items()) if isinstance(probes, dict) else (),
        symptom=parse_symptom(raw),
        pace=tuple(known for one in (pace if isinstance(pace, list) else ()) if (known := parse_pace(one))),
        why=text(raw.get("why"), 512),
    )
