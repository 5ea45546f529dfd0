"""The probes: what a GPU is asked, how often, and what the answers mean."""

from oarlock_trainer.health.probes.links import FABRIC, NVLINK, NVLINK_ERRORS, PCIE_REPLAYS, PCIE_WIDTH
from oarlock_trainer.health.probes.memory import ECC, ROW_REMAP, SRAM
from oarlock_trainer.health.probes.recovery_action import RECOVERY_ACTION
from oarlock_trainer.health.probes.slowdown import POWER_BRAKE, THERMAL_MARGIN, THERMAL_SLOWDOWN

PROBES = (
    RECOVERY_ACTION,
    ROW_REMAP,
    ECC,
    SRAM,
    NVLINK,
    NVLINK_ERRORS,
    FABRIC,
    THERMAL_SLOWDOWN,
    POWER_BRAKE,
    THERMAL_MARGIN,
    PCIE_WIDTH,
    PCIE_REPLAYS,
)
