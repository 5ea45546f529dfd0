"""gpu.fault: the one message that may cost or save a night, in SimpleTuner's shape with what it leaves out. Pure.

Kept are its field names, also those within `fault.gpu`; added are the GPU's UUID, serial and PCI address, the XID, the
verdict and the readings that it rests on, and who tells (envelope.py). Any pod tells of its own GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.report import MAX_EVIDENCE, Evidence, Gpu
from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_api.contract.wire import finite
from oarlock_trainer.agent.webhooks.envelope import GPU_FAULT, Identity, WebhookEvent, event
from oarlock_trainer.health.readings import NO_READINGS, Readings

if TYPE_CHECKING:
    from oarlock_api.contract.report import Report

CUDA_ERROR = "cuda_error"
ECC_ERROR = "ecc_error"
THERMAL = "thermal"
HEALTH_WARNING = "health_warning"
HEALTH_CHECK = "health_check"
CIRCUIT_OPEN = "circuit_open"

_MEMORY_XIDS = frozenset({48, 63, 64, 92, 94, 95, 140})
_SOFTWARE_XIDS = frozenset({13, 31, 43, 45, 68, 69})
_MEMORY_PROBES = frozenset({"ecc", "rowRemap", "sram"})
_MAX_MESSAGE = 1500
_VERDICT_OF = {
    ExitCode.REPLACE_NODE: GpuVerdict.REPLACE_NODE,
    ExitCode.RESTART_PROCESS: GpuVerdict.RESTART_PROCESS,
    ExitCode.PREFLIGHT: GpuVerdict.REPLACE_NODE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """One fault of one GPU. `message` is a sentence for people, `exception_type` the name of a CUDA error's exception.

    Without a `type` it follows from the rest. `gpu` is None where it is not known which one it is.
    """

    verdict: GpuVerdict
    message: str
    gpu: Gpu | None = None
    xid: int | None = None
    evidence: tuple[Evidence, ...] = ()
    readings: Readings = NO_READINGS
    exception_type: str | None = None
    type: str = ""

    @property
    def gpu_key(self) -> str:
        """What tells the GPU from others of this node."""
        return (self.gpu.uuid or self.gpu.pci_bus_id or str(self.gpu.index)) if self.gpu else ""


def fault_of(report: Report) -> GpuFault | None:
    """The fault that a pod's end tells of, None where it blames no GPU."""
    if report.failure_class != FailureClass.GPU and not (report.code == ExitCode.PREFLIGHT and report.gpu):
        return None
    return GpuFault(
        verdict=next(
            (verdict for code, verdict in _VERDICT_OF.items() if code == report.code), GpuVerdict.REPLACE_NODE
        ),
        message=report.summary,
        gpu=report.gpu,
        xid=report.xid,
        evidence=report.evidence,
        type=HEALTH_CHECK if report.code == ExitCode.PREFLIGHT else "",
    )


def fault_type(fault: GpuFault) -> str:
    """SimpleTuner's word for what kind of fault it is."""
    probes = {evidence.probe for evidence in fault.evidence}
    if fault.type:
        return fault.type
    if fault.xid in _MEMORY_XIDS or probes & _MEMORY_PROBES:
        return ECC_ERROR
    if any(probe.startswith("thermal") for probe in probes):
        return THERMAL
    if fault.exception_type or fault.xid in _SOFTWARE_XIDS:
        return CUDA_ERROR
    return CIRCUIT_OPEN if ends_ranks(fault.verdict) else HEALTH_WARNING


def ends_ranks(verdict: GpuVerdict) -> bool:
    """Whether the ranks are ended for it."""
    return verdict.weight >= GpuVerdict.RESTART_PROCESS.weight


def gpu_fault(identity: Identity, at: str, *, fault: GpuFault, step: int | None) -> WebhookEvent:
    """The message about a fault."""
    ending = ends_ranks(fault.verdict)
    return event(
        identity,
        at,
        type_=GPU_FAULT,
        level=WebhookLevel.CRITICAL if ending else WebhookLevel.WARNING,
        title=f"GPU {'fault' if ending else 'warning'} on node {identity.node or 'unknown'}",
        message=fault.message[:_MAX_MESSAGE],
        step=step,
        about=(fault.gpu_key, fault_type(fault), fault.xid, fault.verdict, *sorted({e.probe for e in fault.evidence})),
        body={
            "fault": {
                "type": fault_type(fault),
                "gpu": _gpu(fault.gpu, fault.readings),
                "action_taken": "circuit_opened" if ending else "none",
                "exception_type": fault.exception_type,
                "xid": fault.xid,
                "verdict": fault.verdict,
                "evidence": [
                    {
                        "probe": one.probe[:64],
                        "value": one.value[:256] if isinstance(one.value, str) else finite(one.value),
                        "at": one.at,
                    }
                    for one in fault.evidence[:MAX_EVIDENCE]
                ],
            }
        },
    )


def _gpu(gpu: Gpu | None, readings: Readings) -> dict[str, Any]:
    used = finite(readings.memory_used_percent)
    return {
        "index": gpu.index if gpu else None,
        "name": gpu.name or None if gpu else None,
        "temperature_celsius": finite(readings.temperature_celsius),
        "ecc_errors_single": readings.ecc_errors_single,
        "ecc_errors_double": readings.ecc_errors_double,
        "throttle_reasons": list(readings.throttle_reasons),
        "memory_used_percent": None if used is None else round(used, 1),
        "uuid": gpu.uuid or None if gpu else None,
        "serial": gpu.serial or None if gpu else None,
        "pci_bus_id": gpu.pci_bus_id or None if gpu else None,
    }
