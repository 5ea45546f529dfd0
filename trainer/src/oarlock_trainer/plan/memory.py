"""Memory of one GPU by component: a model, computed before any weights are read.

Sizes in bytes; GB in words are 1e9 bytes. N = trained parameters, W = ranks. Per parameter: 2 bytes of bfloat16 weight
and 2 of gradient; float32 master weight and moments, which ZeRO spreads over the ranks (Rajbhandari et al. 2020). What
DeepSpeed 0.19 really keeps was read in its stage_1_and_2.py: without overlap, or with several micro-batches a step,
stage 1 keeps all gradients; with overlap and one micro-batch they pass through two buckets and only the rank's own part
stays, as in stage 2. Stage 2 keeps that part as float32, in which micro-batches are added up; otherwise the update
copies it to float32. All components are added, though some never meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.optimization import EmaDevice, OptimizerName
from oarlock_trainer.plan import text_encoders
from oarlock_trainer.plan.activations import kept_bytes, width_bytes, working_bytes
from oarlock_trainer.plan.encoding import vae_bytes
from oarlock_trainer.plan.text_encoders import Home
from oarlock_trainer.plan.work import DDP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_trainer.plan.work import Workload

GB = 1e9

_BFLOAT16, _FLOAT32 = 2, 4
_MOMENT_BYTES = {
    OptimizerName.ADAMW: 8,
    OptimizerName.LION: 4,
    OptimizerName.ADAMW_8BIT: 2,
    OptimizerName.PRODIGY: 16,
    OptimizerName.ADAMW_BF16: 4,
    OptimizerName.ADAMW_SCHEDULE_FREE: 8,
}
"""Beside the master weight: two float32 moments, one, two of 8 bits; two with the sums and the start of the estimate; two of
bfloat16, which have no master weight beside them where the weights are bfloat16."""
_SLOTS = {
    OptimizerName.ADAMW: 2,
    OptimizerName.LION: 1,
    OptimizerName.ADAMW_8BIT: 2,
    OptimizerName.PRODIGY: 4,
    OptimizerName.ADAMW_BF16: 2,
    OptimizerName.ADAMW_SCHEDULE_FREE: 3,
}
"""Values of an element that a checkpoint holds as float32, beside the master weight."""
_UPDATED, _UPDATED_BYTES = 16 << 20, 28
"""Elements that AdamWBF16 updates at once, and what each takes meanwhile (engine/adamw_bf16.py)."""
_GATHERED = 1_000_000_000
"""Parameters that stage 3 holds whole at a time: DeepSpeed's stage3_max_live_parameters."""
_LATENT_BYTES = 2 + 5 * 4
"""Of one latent number: bfloat16 as read; noise, noisy latent, target, prediction and error in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Bytes of one part of a GPU's memory, and the arithmetic behind them in words."""

    name: str
    bytes: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Memory:
    """All components of a GPU's memory."""

    components: tuple[Component, ...]

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(one.bytes for one in self.components)

    def of(self, name: str) -> int:
        """Bytes of a component, 0 where there is none of this name."""
        return sum(one.bytes for one in self.components if one.name == name)


def need(work: Workload, *, recomputed: int) -> Memory:
    """Memory that a rank of `work` takes while `recomputed` of its blocks are recomputed."""
    return Memory(tuple(one for one in (*_states(work), *_batch(work, recomputed)) if one.bytes))


def host_bytes(work: Workload) -> int:
    """Bytes of the node's own memory that a rank takes.

    For what is kept out of the GPU, and for the copy of its state that checkpoints are written from.
    """
    count, share = work.parameters.trained, _share(work)
    offloaded = count * (_state_bytes(work) + _FLOAT32) // share if work.offload else 0
    average = (
        2 * count * _FLOAT32 // share if work.ema is EmaDevice.CPU else 0
    )  # and the masters that it is renewed from
    return saved_bytes(work) + offloaded + average + text_encoders.host_bytes(work.family.texts, work.text_home)


def saved_bytes(work: Workload) -> int:
    """Bytes that a rank saves."""
    slots = 1 + _SLOTS[work.optimizer] + (work.ema is not None)
    return work.parameters.trained * _FLOAT32 * slots // work.ranks


def _states(work: Workload) -> Iterator[Component]:
    """What does not depend on the pictures."""
    yield _weights(work)
    yield _gradients(work)
    yield _buckets(work)
    count, share = work.parameters.trained, _share(work)
    if not work.offload:
        yield Component(
            name="optimizer",
            bytes=count * _state_bytes(work) // share,
            arithmetic=f"{_state_bytes(work)} bytes of {'' if _without_masters(work) else 'master weight and '}"
            f"{work.optimizer} moments x {_over(work)}",
        )
    if work.optimizer is OptimizerName.ADAMW_BF16:
        elements = min(count, _UPDATED)
        yield Component(
            name="update",
            bytes=_UPDATED_BYTES * elements,
            arithmetic=f"{_UPDATED_BYTES} bytes x {_many(elements)} updated at once",
        )
    elif not work.adapters and not work.offload and not _adds_in_float32(work):  # adapters are float32 already
        yield Component(
            name="update",
            bytes=count * _FLOAT32 // share,
            arithmetic=f"4 bytes of float32 gradient x {_over(work)}",
        )
    if work.optimizer is OptimizerName.ADAMW_8BIT:
        yield Component(
            name="saving",
            bytes=count * _FLOAT32 * _SLOTS[work.optimizer] // work.ranks,
            arithmetic=f"8 bytes of float32 moments, while a checkpoint is copied, x {_over(work, work.ranks)}",
        )
    if work.optimizer is OptimizerName.ADAMW_SCHEDULE_FREE:
        yield Component(
            name="saving",
            bytes=count * _FLOAT32 // work.ranks,
            arithmetic=f"4 bytes of average, while it is saved or looked at, x {_over(work, work.ranks)}",
        )
    if work.ema is EmaDevice.GPU:
        yield Component(name="EMA", bytes=count * _FLOAT32 // share, arithmetic=f"4 bytes x {_over(work)}")


def _weights(work: Workload) -> Component:
    trained, frozen = work.parameters.trained, work.parameters.frozen
    if work.adapters:
        return Component(
            name="weights",
            bytes=int(frozen * work.frozen_bytes),
            arithmetic=f"{work.frozen_bytes:g} bytes x {_many(frozen)} frozen",
        )
    if work.stage < 3:
        return Component(
            name="weights", bytes=_BFLOAT16 * trained, arithmetic=f"2 bytes of bfloat16 x {_many(trained)}"
        )
    gathered = min(trained, _GATHERED)
    return Component(
        name="weights",
        bytes=_BFLOAT16 * (-(-trained // work.ranks) + gathered),
        arithmetic=f"2 bytes x ({_over(work)} + {_many(gathered)} gathered)",
    )


def _gradients(work: Workload) -> Component:
    count = work.parameters.trained
    if work.adapters:
        return Component(name="gradients", bytes=_FLOAT32 * count, arithmetic=f"4 bytes x {_many(count)}")
    if work.stage >= 2 or (work.stage == 1 and work.overlap and work.accumulation == 1):
        size = _FLOAT32 if _adds_in_float32(work) else _BFLOAT16
        own = 0 if work.offload else size * -(-count // work.ranks)
        return Component(name="gradients", bytes=own, arithmetic=f"{size} bytes x {_over(work)}")
    why = "" if work.stage == DDP else ", all kept: " + ("accumulated" if work.overlap else "no overlap")
    return Component(name="gradients", bytes=_BFLOAT16 * count, arithmetic=f"2 bytes x {_many(count)}{why}")


def _adds_in_float32(work: Workload) -> bool:
    """Whether the gradients of a rank's own part are float32 already, as engine/deepspeed.py configures it."""
    return work.stage == 2 and not work.offload


def _buckets(work: Workload) -> Component:
    number = (
        0 if work.stage == DDP else 2 if work.overlap or work.stage >= 2 else 1
    )  # DDP sends the gradients themselves
    # DeepSpeed copies a bucket that holds gradients of several ranks' parts before it is sent, and one on the way is enough.
    copied = work.stage in {1, 2} and work.ranks > 1
    return Component(
        name="buckets",
        bytes=_BFLOAT16 * (number + copied) * work.bucket_elements,
        arithmetic=f"2 bytes x {_many(work.bucket_elements)} x {number + copied}{', a copy among them' * copied}",
    )


def _batch(work: Workload, recomputed: int) -> Iterator[Component]:
    """What grows with the pictures."""
    shape = work.shape
    one = width_bytes(tokens=work.tokens, samples=work.samples, width=shape.width)
    many = f"{work.samples} x {work.tokens} tokens x width {shape.width}"
    lean = ", of others what is pointwise" if work.lean else ""
    yield Component(
        name="activations",
        bytes=kept_bytes(
            shape.kinds,
            recomputed=recomputed,
            token_bytes=one,
            compiled=work.compiled,
            lean=work.lean,
            text_share=work.text_share,
        ),
        arithmetic=f"{many}, {recomputed} of {shape.blocks} blocks recomputed{lean}",
    )
    live = working_bytes(shape.kinds, token_bytes=one, compiled=work.compiled)
    yield Component(name="block", bytes=live, arithmetic=f"{many}, the block at work")
    text = work.text_tokens * shape.text_width + shape.pooled_width
    own = shape.latent_channels * work.family.grid.patch**2
    more = shape.token_channels - own
    latents = work.image_tokens * (_LATENT_BYTES * own + 2 * _BFLOAT16 * more)
    yield Component(
        name="inputs",
        bytes=work.samples * (2 * _BFLOAT16 * text + latents),
        arithmetic=f"{work.samples} x text embeddings of this batch and the next, latents and loss"
        + (", references beside the noise" if more else ""),
    )
    if encoders := list(_encoders(work)):
        yield max(encoders, key=lambda one: one.bytes)
    if work.text_home is not Home.NONE:
        captions = min(work.captions, work.samples)
        texts = work.family.texts
        at_a_time = "" if work.text_home is Home.GPU else ", a layer at a time,"
        beside = f" and {texts.beside}" if texts.beside else ""
        yield Component(
            name="captions",
            bytes=text_encoders.gpu_bytes(texts, work.text_home, captions=captions, tokens=work.text_tokens),
            arithmetic=f"{texts.name}{at_a_time}{beside}, and {captions} captions that are encoded while training",
        )


def _encoders(work: Workload) -> Iterator[Component]:
    """The VAE at work on what it takes at once while training: on pictures, and on a video."""
    grid = work.family.grid
    largest = work.image_tokens // work.pictures // grid.latent_frames(work.frames) * grid.edge**2
    if pictures := min(work.encoded, work.samples):
        yield _encoder(work, pictures=pictures, pixels=work.encoded_pixels or largest, frames=1)
    if frames := work.encoded_frames:
        yield _encoder(work, pictures=1, pixels=largest, frames=work.frames if work.frames > 1 else frames)


def _encoder(work: Workload, *, pictures: int, pixels: int, frames: int) -> Component:
    each = f"{frames} frames of " if frames > 1 else ""
    return Component(
        name="encoder",
        bytes=vae_bytes(work.family.vae, pictures=pictures, pixels=pixels, frames=frames),
        arithmetic=f"the VAE, and {pictures} x {each}{pixels / 1e6:.2f} megapixels encoded while training",
    )


def _state_bytes(work: Workload) -> int:
    return (0 if _without_masters(work) else _FLOAT32) + _MOMENT_BYTES[work.optimizer]


def _without_masters(work: Workload) -> bool:
    return work.optimizer is OptimizerName.ADAMW_BF16 and not work.adapters


def _share(work: Workload) -> int:
    """Ranks over which the optimizer's state is spread."""
    return 1 if work.stage == DDP else work.ranks


def _over(work: Workload, share: int | None = None) -> str:
    share = share or _share(work)
    return f"{_many(work.parameters.trained)}{f' / {share} GPUs' if share > 1 else ''}"


def _many(count: int) -> str:
    """A number of parameters with its unit, such as 11.9 B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
