"""What one check before the start found: a value, and the line in which the check's process tells it to the agent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from oarlock_api.contract.report import Gpu
from oarlock_api.contract.status import CheckResult
from oarlock_api.contract.wire import WireError, integer, parse_object, text

_MAX_LINE = 65536


class Check(StrEnum):
    """The checks of spec.preflight. All but the collective one are modules of this folder."""

    STORAGE = "storage"
    CLOCK = "clock"
    GPUS = "gpus"
    NETWORK = "network"
    MEMORY = "memory"
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check's word. `code` is what the pod ends with, 0 where nothing stands in the way.

    `gpu` is set only where that GPU itself is to blame: the operator then takes its node from everybody.
    """

    check: str
    result: CheckResult
    detail: str
    code: int = 0
    milliseconds: int | None = None
    gpu: Gpu | None = None

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False).encode(errors="replace") + b"\n"


def parse_line(line: bytes) -> Finding | None:
    """Read one line, or None for what is none: libraries write to standard output too."""
    try:
        raw = parse_object(line.decode(errors="replace"), max_bytes=_MAX_LINE)
    except WireError:
        return None
    if raw.get("result") not in frozenset(CheckResult):
        return None
    return Finding(
        check=text(raw.get("check"), 32),
        result=CheckResult(raw["result"]),
        detail=text(raw.get("detail"), 8192),
        code=integer(raw.get("code")) or 0,
        milliseconds=integer(raw.get("milliseconds")),
        gpu=_gpu(raw.get("gpu")),
    )


def _gpu(raw: Any) -> Gpu | None:
    if not isinstance(raw, dict) or (index := integer(raw.get("index"))) is None:
        return None
    names = ("uuid", "serial", "pci_bus_id", "name")
    return Gpu(index=index, **{name: text(raw.get(name), 64) for name in names})
