"""What a pod knows of its GPUs' health: the verdicts over a symptom, and the part of /status that shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from oarlock_api.contract.report import Gpu
from oarlock_api.contract.wire import text

MAX_GPUS = 16
MAX_PROBES = 32
_MAX_REASON = 512


class GpuVerdict(StrEnum):
    """What a symptom calls for, from little to much."""

    IGNORE = "Ignore"
    HOLD = "Hold"
    """Nothing is lost yet: save now, leave the node at the next chance."""
    RESTART_PROCESS = "RestartProcess"
    """The processes are lost, the GPU is not: start again, the node is not blamed the first time."""
    REPLACE_NODE = "ReplaceNode"
    """The GPU is out of service: start elsewhere, and keep others off it."""

    @property
    def weight(self) -> int:
        """Order of severity."""
        return list(GpuVerdict).index(self)


class HealthState(StrEnum):
    """How the GPUs of a pod are, as far as it can tell."""

    UNKNOWN = "Unknown"
    """Nothing is known yet, or the job has no GPUs."""
    HEALTHY = "Healthy"
    HOLD = "Hold"
    FAULTY = "Faulty"
    UNMONITORED = "Unmonitored"
    """NVML is not there or does not answer: no fault, and no health either."""


class CircuitState(StrEnum):
    """Whether the ranks may go on using the GPUs. Open: they are being ended."""

    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One pod's GPUs. `probes`: which of them this driver and container let us use.

    `reason`, `since` (RFC 3339) and `gpu` tell of the symptom behind Hold and Faulty, `reason` also why nothing is monitored.
    `held`: the probes that have warned (Hold) since the pod began.
    """

    state: str = HealthState.UNKNOWN
    gpus: tuple[Gpu, ...] = ()
    probes: dict[str, bool] = field(default_factory=dict)
    circuit: str = CircuitState.CLOSED
    reason: str = ""
    gpu: Gpu | None = None
    since: str = ""
    held: tuple[str, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        """As a part of /status."""
        held = {"held": [name[:32] for name in self.held[:MAX_PROBES]]} if self.held else {}
        return held | {
            "state": self.state,
            "gpus": [one.to_fields() for one in self.gpus[:MAX_GPUS]],
            "probes": {name[:32]: known for name, known in list(self.probes.items())[:MAX_PROBES]},
            "circuit": {
                "state": self.circuit,
                "reason": self.reason[:_MAX_REASON],
                "gpu": self.gpu.to_fields() if self.gpu else None,
                "since": self.since,
            },
        }


def parse_health(raw: object) -> Health:
    """Read that part. Whatever is not understood is unknown."""
    if not isinstance(raw, dict):
        return Health()
    gpus, probes, circuit = raw.get("gpus"), raw.get("probes"), raw.get("circuit")
    circuit = circuit if isinstance(circuit, dict) else {}
    held = raw.get("held")
    found = [Gpu.of(one) for one in (gpus[:MAX_GPUS] if isinstance(gpus, list) else ())]
    told = list(probes.items())[:MAX_PROBES] if isinstance(probes, dict) else []
    return Health(
        state=text(raw.get("state"), 32) or HealthState.UNKNOWN,
        gpus=tuple(gpu for gpu in found if gpu is not None),
        probes={name[:32]: known for name, known in told if isinstance(known, bool)},
        circuit=text(circuit.get("state"), 32) or CircuitState.CLOSED,
        reason=text(circuit.get("reason"), _MAX_REASON),
        gpu=Gpu.of(circuit.get("gpu")),
        since=text(circuit.get("since"), 40),
        held=tuple(text(name, 32) for name in held[:MAX_PROBES] if isinstance(name, str))
        if isinstance(held, list)
        else (),
    )
