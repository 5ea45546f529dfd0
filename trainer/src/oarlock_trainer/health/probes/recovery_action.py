"""The driver's own verdict on a GPU."""

from __future__ import annotations

import pynvml

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.nvml import recovery_action
from oarlock_trainer.health.series import Probe, Series, Suspicion

ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "be reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "have its node rebooted",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "be drained: its NVLink peers must stop",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "be drained and reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "have its bus reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "have its system rebooted",
}
"""Those that take the GPU out of service."""
RECOVER_IMEX = pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN
"""The one that speaks of several nodes' memory domain, which is no single GPU's fault."""


def _wanted(series: Series) -> Suspicion | None:
    """One reading is enough: it is the driver's conclusion, not a sample."""
    action = series.latest
    if wanted := ACTIONS.get(action):
        words = f"must {wanted}, says the driver (recovery action {action})"
        return Suspicion(verdict=GpuVerdict.REPLACE_NODE, words=words, value=action)
    if action:
        known = "wants the IMEX domain recovered" if action == RECOVER_IMEX else "is new to us"
        return Suspicion(verdict=GpuVerdict.HOLD, words=f"has recovery action {action}, which {known}", value=action)
    return None


RECOVERY_ACTION = Probe(
    name="recoveryAction",
    about="The driver's own verdict (field 230, from R570 on): it folds every XID that the driver knows into one order.",
    every=1.0,
    read=recovery_action,
    judge=_wanted,
)
