"""What the ranks exchange in one optimizer step, and how long a fabric takes for it: a model.

Sizes in bytes, bandwidths in bytes/s of the bus as nccl-tests defines it (its PERFORMANCE.md): a ring over W ranks moves
2 (W - 1) / W of the data through each rank for an all-reduce, and half of that for an all-gather or a reduce-scatter.
That ZeRO 1 and 2 reduce by whole all-reduces, and stage 2 after every micro-batch, was counted in runs of DeepSpeed
0.19.8; the gather of the new weights at the end of its step overlaps with nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.plan.work import DDP
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from oarlock_trainer.plan.gpus import Gpu
    from oarlock_trainer.plan.work import Workload

_BFLOAT16, _FLOAT32 = 2, 4
_ACHIEVED = {
    "8x400G": 370e9,
    "8x200G": 185e9,
    "1x400G": 45e9,
    "1x200G": 22e9,
    "1x100G": 11e9,
    "1x25G": 2.8e9,
}
"""Bus bandwidth that such network cards of a node are taken to reach, a little below what vendors publish."""
_SHARE_OF_LINE_RATE = 0.9
"""The same for any other number and speed of cards."""
NVLINK = "NVLink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """What ties GPUs together, by name, and the bus bandwidth in bytes/s that is assumed or was measured."""

    name: str
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes through a rank in an optimizer step.

    `reduced` bytes in each of `exchanges` can hide behind the work on a micro-batch; `gathered` at the end cannot.
    """

    reduced: float
    exchanges: int
    gathered: float

    @property
    def total(self) -> float:
        """Bytes in the whole step."""
        return self.reduced * self.exchanges + self.gathered


def fabric(name: str, *, gpu: Gpu) -> Interconnect:
    """The fabric of this name: NVLink (one node), or network cards of a node and their speed, such as 8x400G.

    Raises ConfigurationError where it is neither.
    """
    if name == NVLINK:
        return Interconnect(name=name, bandwidth=gpu.nvlink)
    cards = re.fullmatch(r"([1-9]\d?)x([1-9]\d{0,3})G", name)
    if cards is None:
        raise ConfigurationError(
            f"--fabric {name}: say {NVLINK} for GPUs of one node, or the network cards of a node and their speed, such "
            "as 8x400G or 1x100G"
        )
    line_rate = int(cards[1]) * int(cards[2]) * 1e9 / 8
    return Interconnect(name=name, bandwidth=min(_ACHIEVED.get(name, _SHARE_OF_LINE_RATE * line_rate), gpu.nvlink))


def assumed_fabric(*, nodes: int, gpus_per_node: int, gpu: Gpu) -> Interconnect:
    """What is taken where nobody said more: NVLink within a node, a card of 400 Gbit/s for each GPU between nodes."""
    return fabric(NVLINK if nodes == 1 else f"{gpus_per_node}x400G", gpu=gpu)


def all_reduce_bytes(size: float, *, ranks: int) -> float:
    """Bytes through a rank for an all-reduce of `size` bytes."""
    return 2 * gather_bytes(size, ranks=ranks)


def gather_bytes(size: float, *, ranks: int) -> float:
    """Bytes through a rank for an all-gather to, or a reduce-scatter of, `size` bytes."""
    return size * (ranks - 1) / ranks


def traffic(work: Workload) -> Traffic:
    """What one optimizer step of `work` exchanges."""
    ranks = work.ranks
    size = work.parameters.trained * (_FLOAT32 if work.adapters else _BFLOAT16)
    gather = gather_bytes(size, ranks=ranks)
    if work.stage == DDP:
        return Traffic(reduced=all_reduce_bytes(size, ranks=ranks), exchanges=1, gathered=0.0)
    if work.stage == 3:  # weights are gathered for the forward and for the backward pass, gradients scattered
        return Traffic(reduced=3 * gather, exchanges=work.accumulation, gathered=0.0)
    exchanges = work.accumulation if work.stage == 2 else 1
    return Traffic(reduced=all_reduce_bytes(size, ranks=ranks), exchanges=exchanges, gathered=gather)
