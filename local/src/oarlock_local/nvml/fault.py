"""The faults of a GPU that a person orders, and the words that each is made of."""

import math
from collections.abc import Iterator, Sequence
from typing import TypedDict

from oarlock_local.errors import LocalError
from oarlock_local.nvml.words import value_of

FALLEN_OFF_THE_BUS = 79
ASK_FOR_RESET = (48, 64, 95, 140)
"""XIDs after which the driver asks for a reset of the GPU, its recovery action 1."""


class GpuFault(TypedDict, total=False):
    """What happens to one GPU; several at once if wanted. All is optional, `gpu` is 0 where it is not said."""

    gpu: int
    xid: int
    """The event. With 79 the GPU is lost too, with 48, 64, 95 and 140 its recovery action becomes 1."""
    lost: bool
    """It says nothing any more but that it is lost."""
    recovery_action: int
    ecc: int
    """So many uncorrectable memory errors more."""
    remap_pending: bool
    remap_failed: bool
    nvlink_down: int
    """The number of the link."""
    throttle: float
    """So many seconds more of hardware slowdown for heat."""
    word: str
    """Any word of words.py, as `1:margin=-2`."""


def to_words(fault: GpuFault, before: Sequence[str]) -> list[str]:
    """The new words. Counters go on from the words that were said before. Raises LocalError where nothing happens."""
    gpu = fault.get("gpu", 0)
    said = [*_of_xid(fault), *_states(fault), *_counters(fault, gpu, before)]
    words = [f"{gpu}:{word}" for word in said]
    if word := fault.get("word"):
        words.append(word)
    if not words:
        raise LocalError("say what happens to the GPU: an XID, say, or a recovery action.")
    return words


def _of_xid(fault: GpuFault) -> Iterator[str]:
    xid = fault.get("xid")
    if xid is not None:
        yield f"xid={xid}"
    if xid == FALLEN_OFF_THE_BUS:
        yield "gone"
    if xid in ASK_FOR_RESET:
        yield "action=1"


def _states(fault: GpuFault) -> Iterator[str]:
    if fault.get("lost"):
        yield "gone"
    if (action := fault.get("recovery_action")) is not None:
        yield f"action={action}"
    pending, failed = int(fault.get("remap_pending", False)), int(fault.get("remap_failed", False))
    if pending or failed:
        yield f"remap=0,1,{pending},{failed}"
    if (link := fault.get("nvlink_down")) is not None:
        yield f"nvlink={link}"


def _counters(fault: GpuFault, gpu: int, before: Sequence[str]) -> Iterator[str]:
    if (errors := fault.get("ecc")) is not None:
        yield f"ecc={_counted(before, f'{gpu}:ecc') + errors}"
    if (seconds := fault.get("throttle")) is not None:
        if not 0 <= seconds < math.inf:
            raise LocalError(f"throttled for {seconds} s: say a number of seconds from 0 on.")
        yield f"thermal={_counted(before, f'{gpu}:thermal') + round(seconds * 1e9)}"


def _counted(before: Sequence[str], name: str) -> int:
    return int(value_of(before, name) or 0)
