"""What the NVIDIA driver's error numbers (XIDs) call for, as data.

The meanings are those of NVIDIA's XID catalog for Hopper; the verdicts are ours, from its "immediate action" column and
from what twelve other systems do (they agree never to take a node away for a first 13, 31, 43, 45 or 68). The driver's own
recovery action, where it has one, outranks this table: an action is always followed, and the lack of one acquits a number
that often is only an echo of something else (`echo`).
"""

from __future__ import annotations

from dataclasses import dataclass

from oarlock_api.contract.health import GpuVerdict
from oarlock_trainer.health.probes.recovery_action import ACTIONS

_IGNORE, _HOLD = GpuVerdict.IGNORE, GpuVerdict.HOLD
_RESTART, _REPLACE = GpuVerdict.RESTART_PROCESS, GpuVerdict.REPLACE_NODE


@dataclass(frozen=True, slots=True)
class Xid:
    """One row. `echo`: often caused by another GPU or process, so a driver that asks for no action acquits the GPU."""

    verdict: GpuVerdict
    words: str
    echo: bool = False


XIDS: dict[int, Xid] = {
    13: Xid(_RESTART, "graphics engine exception"),
    31: Xid(_RESTART, "memory page fault"),
    32: Xid(_RESTART, "corrupted push buffer"),
    43: Xid(_RESTART, "the program hit a software fault"),
    45: Xid(_IGNORE, "channel removed, after a kill or another fault"),
    46: Xid(_REPLACE, "the GPU stopped processing"),
    48: Xid(_REPLACE, "double-bit memory error"),
    61: Xid(_RESTART, "breakpoint of the power unit"),
    62: Xid(_REPLACE, "the power unit halted"),
    63: Xid(_HOLD, "a memory row is to be remapped"),
    64: Xid(_REPLACE, "a memory row could not be remapped"),
    68: Xid(_RESTART, "video decoder exception"),
    69: Xid(_RESTART, "graphics class error"),
    74: Xid(_REPLACE, "NVLink error", echo=True),
    79: Xid(_REPLACE, "fallen off the bus"),
    92: Xid(_HOLD, "many single-bit memory errors"),
    93: Xid(_IGNORE, "InfoROM write limit"),
    94: Xid(_RESTART, "contained memory error"),
    95: Xid(_REPLACE, "uncontained memory error"),
    109: Xid(_RESTART, "context switch timeout"),
    110: Xid(_REPLACE, "security fault"),
    119: Xid(_REPLACE, "the GPU's system processor timed out"),
    120: Xid(_REPLACE, "the GPU's system processor failed"),
    121: Xid(_IGNORE, "corrected error on the link to the CPU"),
    136: Xid(_REPLACE, "an NVLink could not be trained"),
    137: Xid(_RESTART, "NVLink access fault"),
    140: Xid(_REPLACE, "unrecovered memory error"),
    141: Xid(_RESTART, "CUDA fast-path error"),
    143: Xid(_REPLACE, "the GPU could not be initialized"),
    154: Xid(_IGNORE, "the recovery action changed"),  # read as the action itself
    156: Xid(_HOLD, "a resource is to be retired"),
    157: Xid(_REPLACE, "a resource could not be retired"),
    158: Xid(_REPLACE, "fatal timeout"),
    171: Xid(_REPLACE, "uncorrectable memory error"),
    172: Xid(_REPLACE, "uncorrectable SRAM error"),
}
UNKNOWN = Xid(_RESTART, "not in our table")
"""The gang starts again and the node is blamed only if the driver asks for an action, or the number comes again."""


def verdict_of(xid: int, *, action: int | None) -> tuple[GpuVerdict, str]:
    """(verdict, words) of an XID, given the driver's recovery action read after it; None where it has none to tell."""
    row = XIDS.get(xid, UNKNOWN)
    words = f"XID {xid}, {row.words}"
    if row.verdict is _REPLACE and not (row.echo and action == 0):
        return _REPLACE, words
    if wanted := ACTIONS.get(action or 0):
        return _REPLACE, f"{words}, and must {wanted}, says the driver (recovery action {action})"
    if row.echo:
        return _RESTART, f"{words}, and the driver asks for no action"
    return row.verdict, words
