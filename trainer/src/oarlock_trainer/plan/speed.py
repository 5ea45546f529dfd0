"""How long an optimizer step should take: a model, never a result.

Work per picture, as in flops.py, at the rates that the parts reach on an H100: matrices 620 TFLOP/s in long runs, the
attention of cuDNN and FlashAttention 3 540 with heads of 128 and some thousand tokens, FlashAttention 2 360 (Shah et al.
2024, figures 5 and 6); other GPUs in proportion to their peak. Pointwise chains go by the memory's bandwidth, and take 3.5
times as long where the compiler does not fuse them. A block that is recomputed does its forward pass twice, a lean one its
pointwise part. Gradients travel while the backward pass runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.engine import Attention
from oarlock_trainer.plan import text_encoders
from oarlock_trainer.plan.activations import again as again_widths
from oarlock_trainer.plan.communication import traffic
from oarlock_trainer.plan.flops import (
    attention_flops,
    matrix_flops,
    model_flops_utilization,
    peak_flops,
    training_flops,
)
from oarlock_trainer.plan.work import DDP

if TYPE_CHECKING:
    from oarlock_trainer.plan.communication import Interconnect
    from oarlock_trainer.plan.gpus import Gpu
    from oarlock_trainer.plan.work import Workload

_MATRICES = 620 / 989
_ATTENTION = 540 / 989
_OLDER_ATTENTION = 360 / 989
"""Shares of the dense bf16 peak."""
_FP8_GAIN = 1.5
"""Of matrices, conversions included."""
_NEWER = (Attention.CUDNN, Attention.FLASH3)
"""Auto is none of them (models/compute/attention.py)."""
_ATTENTION_BACKWARD, _POINTWISE_BACKWARD = 2.5, 2.0
"""In forward passes."""
_FUSED_BYTES, _EAGER_BYTES = 48.0, 167.0
"""Moved in a forward pass for each block, token and width."""
_AGAIN_BYTES = 4.0
"""Moved for each width that a lean block computes once more: read and written."""
_STEP_SECONDS = 0.02
"""Launches and waits of the update, whatever is updated."""
_GRADIENT_BYTES, _STATE_BYTES = 8.0, 28.0
"""Moved for each gradient on its way through the buckets, and for each parameter of a rank's part by the optimizer."""
_HOST_BANDWIDTH, _PCIE_BANDWIDTH = 200e9, 25e9
"""Bytes/s of a node's own memory, and of a GPU's way to it."""
_SLOWEST = 1.3
"""The best published recipe for such a model on H100s reaches 33 % (Wan 2.1 14B in NeMo) where this model says 42 with
cuDNN's attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Seconds of one optimizer step by part, and what they mean; shares of the peak in 0..1."""

    compute: float
    exposed: float
    """Of communication, hidden behind nothing."""
    update: float
    flops: float
    """Useful ones of the step, of all GPUs."""
    gpus: int
    peak: float
    """FLOP/s of one GPU."""

    @property
    def seconds(self) -> float:
        """A step that everything goes well in."""
        return self.compute + self.exposed + self.update

    @property
    def slow_seconds(self) -> float:
        """A step at the efficiency that others have published."""
        return self.seconds * _SLOWEST

    def utilization(self, seconds: float) -> float:
        """MFU of a step of `seconds`."""
        return model_flops_utilization(flops=self.flops, seconds=seconds, devices=self.gpus, peak=self.peak)


def expect(work: Workload, *, recomputed: int, gpu: Gpu, fabric: Interconnect) -> Speed:
    """What a step of `work` should take with `recomputed` of its blocks recomputed."""
    forward, backward = _passes(work, recomputed=recomputed, gpu=gpu)
    useful = training_flops(work.shape, tokens=work.tokens, text_share=work.text_share, frozen=work.adapters)
    captions = text_encoders.seconds(
        work.family.texts, work.text_home, captions=work.samples, tokens=work.text_tokens, rate=_peak(gpu) * _MATRICES
    )
    return Speed(
        compute=(forward + backward + captions) * work.accumulation,
        exposed=_exposed_seconds(work, fabric, forward=forward, backward=backward),
        update=_update_seconds(work, gpu),
        flops=work.batch.effective * useful,
        gpus=work.ranks,
        peak=_peak(gpu),
    )


def _passes(work: Workload, *, recomputed: int, gpu: Gpu) -> tuple[float, float]:
    """Seconds of a micro-batch's forward and backward pass on one GPU."""
    width, tokens, text_share = work.shape.width, work.tokens, work.text_share
    blocks = sum(kind.number * kind.share(text_share) for kind in work.shape.kinds)
    peak, again = _peak(gpu), recomputed / work.shape.blocks
    matrices = matrix_flops(work.shape, tokens=tokens, text_share=text_share)
    attention = attention_flops(work.shape, tokens=tokens, text_share=text_share)
    matrix_rate = peak * _MATRICES * (_FP8_GAIN if work.fp8 and gpu.has_fp8 else 1.0)
    attention_rate = peak * (_ATTENTION if work.attention in _NEWER else _OLDER_ATTENTION)
    moved = (_FUSED_BYTES if work.compiled else _EAGER_BYTES) * blocks * tokens * width
    parts = (matrices / matrix_rate, attention / attention_rate, moved / gpu.memory_bandwidth)
    factors = (_backward_work(work), _ATTENTION_BACKWARD, _POINTWISE_BACKWARD)
    backward = sum(part * (factor + again) for part, factor in zip(parts, factors, strict=True))
    if work.lean:
        more = again_widths(work.shape.kinds, text_share=text_share)
        backward += more * _AGAIN_BYTES * tokens * width / gpu.memory_bandwidth
    read = _modulation_bytes(work) / gpu.memory_bandwidth
    return work.samples * sum(parts) + read, work.samples * backward + read * (_POINTWISE_BACKWARD + again)


def _modulation_bytes(work: Workload) -> float:
    """Weights that scale and shift whole samples.

    They are read once a micro-batch and pass, however few samples it has.
    """
    return 2.0 * sum(kind.number * kind.modulation for kind in work.shape.kinds)


def _backward_work(work: Workload) -> float:
    """Matrix work of the backward pass in forward passes: frozen weights need no gradient of their own."""
    return 1.0 if work.adapters else 2.0


def _exposed_seconds(work: Workload, fabric: Interconnect, *, forward: float, backward: float) -> float:
    """Seconds in which the GPU waits for others."""
    moved = traffic(work)
    hidden = backward if work.overlap else 0.0
    if work.stage == 3:
        hidden = forward + backward  # weights of the next blocks are gathered in both passes
    return moved.exchanges * max(moved.reduced / fabric.bandwidth - hidden, 0.0) + moved.gathered / fabric.bandwidth


def _update_seconds(work: Workload, gpu: Gpu) -> float:
    count = work.parameters.trained
    own = count / (1 if work.stage == DDP else work.ranks)
    if work.offload:
        on_host = _STATE_BYTES * own * min(work.ranks, work.ranks_per_node) / _HOST_BANDWIDTH
        return _STEP_SECONDS + on_host + (4 + 2) * own / _PCIE_BANDWIDTH
    return _STEP_SECONDS + (_GRADIENT_BYTES * count + _STATE_BYTES * own) / gpu.memory_bandwidth


def _peak(gpu: Gpu) -> float:
    peak = peak_flops(gpu.name)
    if peak is None:
        raise ValueError(f"{gpu.name} has no peak")
    return peak
