"""What other actors write on a node that they mean to repair or to empty: read, never written.

Kubernetes, GPU drivers, health agents and clouds each have a word of their own for it; the table below is all that Oarlock
knows of them. Oarlock's own cordon is read as any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

TAINTS = ("gpu.nvidia.com/", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
"""Beginnings of keys: NVIDIA's DRA driver (xid, gpu-lost), cluster-autoscaler, Karpenter."""
LABELS = {
    # NVSentinel's quarantine, until the repair has succeeded.
    "dgxc.nvidia.com/nvsentinel-state": (
        "quarantined",
        "draining",
        "drain-succeeded",
        "drain-failed",
        "remediating",
        "remediation-failed",
    ),
    # SageMaker HyperPod.
    "sagemaker.amazonaws.com/node-health-status": (
        "Unschedulable",
        "UnschedulablePendingReplacement",
        "UnschedulablePendingReboot",
    ),
    # IBM Autopilot.
    "autopilot.ibm.com/gpuhealth": ("EVICT",),
}
CONDITIONS = {
    # EKS node monitoring agent.
    "AcceleratedHardwareReady": "False",
    # AKS node problem detector.
    "GPUMissing": "True",
    "NVLinkStatusInactive": "True",
    "XIDErrors": "True",
    "IBLinkFlapping": "True",
    "UnhealthyNvidiaDevicePlugin": "True",
}
_KEEPS_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Why a node is to be left. `enforced`: the scheduler keeps new pods off by itself."""

    message: str
    enforced: bool


def maintenance_of(node: Json) -> Maintenance | None:
    """Why a node is to be emptied, the first that is found; None where nobody wants it emptied."""
    spec = node.get("spec") or {}
    for taint in spec.get("taints") or []:
        if taint.get("effect") in _KEEPS_OFF and str(taint.get("key", "")).startswith(TAINTS):
            return Maintenance(f"taint {taint['key']}", enforced=True)
    if spec.get("unschedulable"):
        return Maintenance("cordoned", enforced=True)
    labels = node["metadata"].get("labels") or {}
    for key, values in LABELS.items():
        if labels.get(key) in values:
            return Maintenance(f"label {key}={labels[key]}", enforced=False)
    for condition in (node.get("status") or {}).get("conditions") or []:
        if condition.get("type") in CONDITIONS and condition.get("status") == CONDITIONS[condition["type"]]:
            return Maintenance(f"condition {condition['type']}={condition['status']}", enforced=False)
    return None
