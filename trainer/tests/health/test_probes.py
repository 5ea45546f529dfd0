"""What the probes make of readings: changes count, samples don't, and what was before the job is nobody's fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.probes import PROBES
from oarlock_trainer.health.probes.links import FABRIC, NVLINK, NVLINK_ERRORS, PCIE_REPLAYS, PCIE_WIDTH
from oarlock_trainer.health.probes.memory import ECC, ROW_REMAP, SRAM
from oarlock_trainer.health.probes.recovery_action import RECOVERY_ACTION
from oarlock_trainer.health.probes.slowdown import POWER_BRAKE, THERMAL_MARGIN, THERMAL_SLOWDOWN
from oarlock_trainer.health.series import Reading, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.health.series import Probe

HOLD, REPLACE = GpuVerdict.HOLD, GpuVerdict.REPLACE_NODE


def judge(probe: Probe, values: Sequence[Any]) -> GpuVerdict | None:
    """The verdict after readings at the probe's own pace, and that none came before the last."""
    readings = [Reading(number * probe.every, value) for number, value in enumerate(values)]
    series, found = Series(readings[0]), None
    for reading in readings:
        assert found is None, f"told too early, before {reading}"
        series.readings.append(reading)
        found = probe.judge(series)
    return found.verdict if found else None


SECOND = 10**9
UP = frozenset(range(18))
CASES = [
    (RECOVERY_ACTION, [0, 0, 1], REPLACE, "the driver wants a reset"),
    (RECOVERY_ACTION, [2], REPLACE, "the driver wanted a reboot before"),
    (RECOVERY_ACTION, [0, 5], HOLD, "a domain of several nodes"),
    (RECOVERY_ACTION, [0, 42], HOLD, "an action that is new to us"),
    (RECOVERY_ACTION, [0, 0, 0], None, "no action"),
    (ROW_REMAP, [(1, 2, 0, 0), (1, 3, 1, 0)], HOLD, "a remap becomes pending"),
    (ROW_REMAP, [(1, 2, 1, 0), (1, 2, 1, 0)], None, "a remap was pending before"),
    (ROW_REMAP, [(1, 2, 0, 1)], REPLACE, "a remap failed, whenever"),
    (ECC, [7, 7, 8, 8], REPLACE, "one more uncorrectable error"),
    (ECC, [7, 7, 8], None, "one more that an event may still call contained"),
    (ECC, [700, 700, 700], None, "errors from before"),
    (SRAM, [False, True], REPLACE, "the driver's SRAM threshold"),
    (SRAM, [False, False], None, "below the SRAM threshold"),
    (NVLINK, [UP, UP, UP - {3}, UP - {3}], REPLACE, "a link stays down"),
    (NVLINK, [UP, UP, UP - {3}, UP, UP], None, "a link trains anew"),
    (NVLINK, [UP - {3}] * 4, None, "a link that never was up"),
    (NVLINK_ERRORS, [100, 100, 105], HOLD, "five errors in a minute"),
    (NVLINK_ERRORS, [100, 104, *[104] * 6, 108], None, "four errors in a minute, twice"),
    (FABRIC, [(3, 0, 1), (3, 0, 2), (3, 0, 2)], HOLD, "unhealthy twice"),
    (FABRIC, [(3, 0, 1), (3, 0, 2), (3, 0, 1)], None, "unhealthy for a moment"),
    (FABRIC, [(3, 0, 0), (3, 5, 0), (3, 5, 0)], HOLD, "registered with an error"),
    (THERMAL_SLOWDOWN, [n * 4 * SECOND for n in range(12)], HOLD, "hot for four seconds in five"),
    (THERMAL_SLOWDOWN, [n * 2 * SECOND for n in range(30)], None, "hot for two seconds in five"),
    (THERMAL_SLOWDOWN, [10**15] * 20, None, "hot last year"),
    (POWER_BRAKE, [n * 5 * SECOND for n in range(12)], HOLD, "braked all the time"),
    (THERMAL_MARGIN, [(3, -2), *[(-2, -2)] * 6], HOLD, "at its limit for half a minute"),
    (THERMAL_MARGIN, [(-2, -2)] * 5, None, "at its limit for less"),
    (PCIE_WIDTH, [16, 16, 8, 8], HOLD, "fewer lanes than at the start"),
    (PCIE_WIDTH, [8, 8, 8], None, "never had more lanes"),
    (PCIE_REPLAYS, [0, 600], HOLD, "many replays"),
    (PCIE_REPLAYS, [10**6, 10**6 + 9], None, "a few replays"),
]


@pytest.mark.parametrize(
    ("probe", "values", "verdict"), [pytest.param(*case[:3], id=f"{case[0].name}: {case[3]}") for case in CASES]
)
def test_readings_are_judged_by_what_changed(probe: Probe, values: list[Any], verdict: GpuVerdict | None) -> None:
    assert judge(probe, values) is verdict


def test_every_probe_is_judged_above() -> None:
    assert {case[0] for case in CASES} == set(PROBES)


def test_a_counter_that_was_reset_counts_from_nothing() -> None:
    series = Series(Reading(0.0, 50))
    series.readings.extend([Reading(0.0, 50), Reading(10.0, 3)])
    assert series.rise(60.0) == (3, 10.0)


def test_nothing_but_the_driver_and_lost_data_take_a_node_away() -> None:
    """A hot or braked GPU, a worn cable: many nodes may show that at once, and none may be cordoned for it."""
    taking = {case[0].name for case in CASES if case[2] is REPLACE}
    assert taking == {"recoveryAction", "rowRemap", "ecc", "sram", "nvlink"}
