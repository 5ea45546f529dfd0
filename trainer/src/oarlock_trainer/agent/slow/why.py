"""What holds a slow rank back, in words, from what was counted while it was slow. Pure.

A cause is named by its first words, which docs/recovery.md lists: `GPU clocks`, `CPU share`, `storage`.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.agent.slow.counts import Counts
    from oarlock_trainer.health.pace import GpuPace

_WAITED = 0.05
"""The share of the time without a processor that explains something: the lag is ten percent or more."""
_LIMITED = 0.1
"""The share of a CPU limit's periods in which it was used up."""
_STALLED = 0.1
"""The share of the time in which storage was waited for."""
_BEHIND = 0.95
"""Of the other GPUs' clocks: what is below is not their usual scatter."""
_BRAKES = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
"""Of NVML's reasons those that a healthy GPU does not have; each has a power cap."""


def why(before: Counts, after: Counts, pace: Sequence[GpuPace], *, gpu: int | None) -> str:
    """One sentence, without its full stop.

    `pace` is of all GPUs of the pod, empty where one is not seen; `gpu` is the rank's own place among them, if any.
    """
    found = [words for words in (_clocks(pace, gpu), _processors(before, after), _storage(before, after)) if words]
    if found:
        return "; ".join(found)
    seen = gpu is None or any(one.clock is not None for one in pace)
    clocks = "" if gpu is None or not seen else "its GPU's clocks, "
    unseen = "" if seen else ", and nobody sees its GPU's clocks (nvidia-smi -q -d CLOCK,PERFORMANCE)"
    return (
        f"neither {clocks}its share of the processors nor storage shows why{unseen}: look at what else runs on its node"
    )


def _clocks(pace: Sequence[GpuPace], gpu: int | None) -> str:
    if gpu is None or gpu >= len(pace) or pace[gpu].clock is None:
        return ""
    own, brakes = pace[gpu], [reason for reason in pace[gpu].slowed_by if reason in _BRAKES]
    others = [one.clock for place, one in enumerate(pace) if place != gpu and one.clock]
    usual = median(others) if others else own.highest_clock or 0
    if not brakes and not (others and own.clock and own.clock < _BEHIND * usual):
        return ""
    beside = f", the others of its pod at {usual:.0f}" if others else f" of {usual:.0f}"
    reasons = f" ({', '.join(own.slowed_by)})" if own.slowed_by else ""
    return f"GPU clocks: GPU {own.index} runs at {own.clock} MHz{beside}{reasons}"


def _processors(before: Counts, after: Counts) -> str:
    found = []
    waited = _share(before.waited, after.waited, after.at - before.at)
    if waited >= _WAITED:
        found.append(f"for {waited:.0%} of the time it was ready to run and had no processor")
    if before.periods and after.periods:
        limited = _share(before.periods[1], after.periods[1], after.periods[0] - before.periods[0])
        if limited >= _LIMITED:
            found.append(f"its pod's CPU limit is used up in {limited:.0%} of its periods")
    return f"CPU share: {', and '.join(found)}" if found else ""


def _storage(before: Counts, after: Counts) -> str:
    stalled = _share(before.stalled, after.stalled, after.at - before.at)
    of = "node" if after.of_the_node else "pod"
    return f"storage: for {stalled:.0%} of the time processes of its {of} waited for it" if stalled >= _STALLED else ""


def _share(before: float | None, after: float | None, of: float) -> float:
    return min(max(0.0, after - before) / of, 1.0) if before is not None and after is not None and of > 0 else 0.0
