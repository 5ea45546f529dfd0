"""The table of XIDs, row by row, and how the driver's own word outranks it."""

from __future__ import annotations

import pytest

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health import xids
from oarlock_trainer.health.probes.recovery_action import ACTIONS

_IGNORED = {45, 93, 121, 154}
_HELD = {63, 92, 156}
_RESTARTED = {13, 31, 32, 43, 61, 68, 69, 94, 109, 137, 141}
_REPLACED = {46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 157, 158, 171, 172}
ROWS = [
    *((number, GpuVerdict.IGNORE) for number in sorted(_IGNORED)),
    *((number, GpuVerdict.HOLD) for number in sorted(_HELD)),
    *((number, GpuVerdict.RESTART_PROCESS) for number in sorted(_RESTARTED)),
    *((number, GpuVerdict.REPLACE_NODE) for number in sorted(_REPLACED)),
]


@pytest.mark.parametrize(("number", "verdict"), ROWS, ids=str)
def test_each_xid_calls_for_what_the_design_says(number: int, verdict: GpuVerdict) -> None:
    found, words = xids.verdict_of(number, action=None)
    assert found is verdict
    assert f"XID {number}" in words


def test_every_row_of_the_table_is_looked_at_above() -> None:
    assert sorted(xids.XIDS) == sorted(number for number, _ in ROWS)


def test_an_unknown_xid_restarts_the_gang_and_blames_nobody() -> None:
    assert xids.verdict_of(9999, action=None)[0] is GpuVerdict.RESTART_PROCESS


def test_an_nvlink_error_without_a_recovery_action_is_an_echo_of_a_dead_peer() -> None:
    assert xids.verdict_of(74, action=0)[0] is GpuVerdict.RESTART_PROCESS
    assert xids.verdict_of(74, action=1)[0] is GpuVerdict.REPLACE_NODE


@pytest.mark.parametrize("number", sorted(_REPLACED - {74}))
def test_a_driver_that_asks_for_no_action_yet_does_not_acquit_of_a_fault_of_the_hardware(number: int) -> None:
    assert xids.verdict_of(number, action=0)[0] is GpuVerdict.REPLACE_NODE


@pytest.mark.parametrize("action", sorted(ACTIONS))
@pytest.mark.parametrize("number", [*sorted(xids.XIDS), 9999])
def test_an_action_that_takes_the_gpu_out_replaces_the_node_whatever_the_table_says(number: int, action: int) -> None:
    verdict, words = xids.verdict_of(number, action=action)
    assert verdict is GpuVerdict.REPLACE_NODE
    assert f"XID {number}" in words


def test_an_action_of_the_drivers_that_is_not_about_the_gpu_leaves_the_table_as_it_is() -> None:
    assert xids.verdict_of(31, action=5)[0] is GpuVerdict.RESTART_PROCESS
    assert xids.verdict_of(45, action=42)[0] is GpuVerdict.IGNORE
