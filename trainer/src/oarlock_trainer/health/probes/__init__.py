"""The probes, one a file: what a GPU is asked, how often, and what the answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.health.probes import (
    ecc,
    fabric,
    nvlink,
    nvlink_errors,
    pcie,
    pcie_replays,
    power_brake,
    recovery_action,
    row_remap,
    sram,
    thermal_margin,
    thermal_slowdown,
)

if TYPE_CHECKING:
    from oarlock_trainer.health.series import Probe

PROBES: tuple[Probe, ...] = (
    recovery_action,
    row_remap,
    ecc,
    sram,
    nvlink,
    nvlink_errors,
    fabric,
    thermal_slowdown,
    power_brake,
    thermal_margin,
    pcie,
    pcie_replays,
)
