"""A symptom: one thing that speaks against one GPU, with the reading behind it and what it calls for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.report import Evidence, Gpu
from oarlock_api.contract.wire import integer, number, text
from oarlock_trainer.health.readings import NO_READINGS, Readings, parse_readings

MAX_WORDS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """`words` continue a sentence that begins with the GPU's name; `at` is RFC 3339 on this pod's clock.

    `gpu` is None where it is not known which one it is.
    """

    probe: str
    verdict: GpuVerdict
    words: str
    value: float | str
    at: str
    gpu: Gpu | None = None
    xid: int | None = None
    readings: Readings = NO_READINGS

    @property
    def summary(self) -> str:
        """One sentence, by all names that the GPU has."""
        return f"{name_of(self.gpu)} {self.words}"

    @property
    def evidence(self) -> Evidence:
        """The reading behind it, for a report."""
        return Evidence(probe=self.probe, value=self.value, at=self.at)

    def to_fields(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"gpu": self.gpu.to_fields() if self.gpu else None}


def name_of(gpu: Gpu | None) -> str:
    """How people find a GPU: its index on the node, and the names on its label."""
    if gpu is None:
        return "a GPU"
    known = [gpu.uuid, gpu.serial and f"serial {gpu.serial}", gpu.pci_bus_id and f"PCI {gpu.pci_bus_id}"]
    return f"GPU {gpu.index}" + (f" ({', '.join(filter(None, known))})" if any(known) else "")


def parse_symptom(raw: dict[str, Any]) -> Symptom | None:
    """Read one from JSON, None where it is none."""
    verdict, value = raw.get("verdict"), raw.get("value")
    reading = text(value) if isinstance(value, str) else number(value)
    if verdict not in frozenset(GpuVerdict) or reading is None:
        return None
    return Symptom(
        probe=text(raw.get("probe"), 64),
        verdict=GpuVerdict(verdict),
        words=text(raw.get("words"), MAX_WORDS),
        value=reading,
        at=text(raw.get("at"), 40),
        gpu=Gpu.of(raw.get("gpu")),
        xid=integer(raw.get("xid")),
        readings=parse_readings(raw.get("readings")),
    )
