"""Small transformers, twice with the same weights, that are given a second picture; and what diffusers' pipelines ask them.

A new kind of reference adds its own to REFERENCES.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import flux2_pair
import flux_pair
import qwenimage_pair
import torch
from diffusers import (
    Flux2KleinPipeline,
    FluxControlPipeline,
    FluxFillPipeline,
    FluxKontextPipeline,
    FluxTransformer2DModel,
)

from oarlock_trainer.models.family import Reference
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.velocity import pack, unpack, velocity_beside
from oarlock_trainer.models.flux.velocity import velocity as flux_velocity
from oarlock_trainer.models.flux2.velocity import velocity as flux2_velocity
from oarlock_trainer.models.objective.loss import MicroBatch
from oarlock_trainer.models.qwenimage import tokens as qwenimage
from oarlock_trainer.models.qwenimage.velocity import velocity as qwenimage_velocity

if TYPE_CHECKING:
    from collections.abc import Callable

    from forward_pairs import Pair
    from torch import Tensor

CPU, TEXT = torch.device("cpu"), 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """What differs between kinds of references."""

    name: str
    pair: Pair
    """The family's."""
    make: Callable[[], tuple[Any, Any]]
    velocity: Any
    theirs: Callable[[Any, Tensor, MicroBatch], Tensor]
    """(model, noisy, batch) -> what the pipeline asks the model and takes of its answer."""
    channels: int
    reference: int
    """Channels of the reference's latents."""
    latents: tuple[int, int] = (8, 12)
    smaller: tuple[int, int] | None = None
    """Another size that a reference may have, whose tokens are its own: there may also be none then."""
    moves: float = 0.01
    """Relative distance that another reference moves a prediction, at least."""
    is_masked: bool = False
    """Whether the pipeline's model takes masks of texts."""
    text: int
    pooled: int = 0

    def batch(self, size: tuple[int, int], *, masked: bool) -> MicroBatch:
        generator = torch.Generator().manual_seed(1)

        def random(*shape: int) -> Tensor:
            return torch.randn(2, *shape, generator=generator)

        return MicroBatch(
            latents=random(self.channels, *self.latents), noise=random(self.channels, *self.latents),
            reference=random(self.reference, *size), text=random(TEXT, self.text), pooled=random(self.pooled),
            sigmas=torch.tensor([0.25, 0.5]), guidance=torch.tensor([2.5, 10.0]),
            text_mask=torch.tensor([[TEXT], [TEXT - 3]]) > torch.arange(TEXT) if masked else None,
        )  # fmt: skip


def in_kontext(model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    own, behind = (
        FluxKontextPipeline._prepare_latent_image_ids(1, one.shape[2] // 2, one.shape[3] // 2, CPU, torch.float32)
        for one in (noisy, batch.reference)
    )
    behind[..., 0] = 1
    tokens, mask = torch.cat([pack(noisy), pack(batch.reference)], dim=1), batch.text_mask
    if mask is not None:
        mask = torch.cat([mask, mask.new_ones(tokens.shape[:2])], dim=1)[:, None, None]
    found = model(
        hidden_states=tokens, encoder_hidden_states=batch.text, pooled_projections=batch.pooled, timestep=batch.sigmas,
        guidance=batch.guidance, img_ids=torch.cat([own, behind]), txt_ids=torch.zeros(TEXT, 3), return_dict=False,
        joint_attention_kwargs=None if mask is None else {"attention_mask": mask},
    )[0]  # fmt: skip
    height, width = noisy.shape[2:]
    return unpack(found[:, : height * width // 4], channels=noisy.shape[1], height=height, width=width)


def made_beside(kind: Reference) -> tuple[Any, Any]:
    channels = flux_pair.CHANNELS // 4
    torch.manual_seed(0)
    model = FluxTransformer2DModel(
        in_channels=4 * (channels + kind.channels(channels, FLUX1.grid)), out_channels=4 * channels, num_layers=2,
        num_single_layers=3, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=flux_pair.TEXT_WIDTH,
        pooled_projection_dim=flux_pair.POOLED, guidance_embeds=True, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    return model, copy.deepcopy(model)


def in_beside(pipeline: Any, model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    """Latents of the reference, and behind them the holes, if it has such: each is packed by itself."""
    channels, (height, width) = noisy.shape[1], noisy.shape[2:]
    parts = [noisy, batch.reference[:, :channels], batch.reference[:, channels:]]
    found = model(
        hidden_states=torch.cat([pack(one) for one in parts if one.shape[1]], dim=2), timestep=batch.sigmas,
        encoder_hidden_states=batch.text, pooled_projections=batch.pooled, guidance=batch.guidance, return_dict=False,
        img_ids=pipeline._prepare_latent_image_ids(1, height // 2, width // 2, CPU, torch.float32),
        txt_ids=torch.zeros(TEXT, 3),
    )[0]  # fmt: skip
    return unpack(found, channels=channels, height=height, width=width)


def in_flux2(model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    packed, own = Flux2KleinPipeline._pack_latents, Flux2KleinPipeline._prepare_latent_ids(noisy)[0]
    behind = Flux2KleinPipeline._prepare_image_ids([batch.reference[:1]])[0]
    found = model(
        hidden_states=torch.cat([packed(noisy), packed(batch.reference)], dim=1), encoder_hidden_states=batch.text,
        timestep=batch.sigmas, guidance=None, return_dict=False, img_ids=torch.cat([own, behind]),
        txt_ids=Flux2KleinPipeline._prepare_text_ids(batch.text)[0],
    )[0]  # fmt: skip
    return found[:, : own.shape[0]].transpose(1, 2).reshape_as(noisy)


def in_qwenimage_edit(model: Any, noisy: Tensor, batch: MicroBatch) -> Tensor:
    own, behind = qwenimage.pack(noisy), qwenimage.pack(batch.reference)
    rows, columns = own.shape[2:]
    found = model(
        hidden_states=torch.cat([own.flatten(2), behind.flatten(2)], dim=2).transpose(1, 2), timestep=batch.sigmas,
        encoder_hidden_states=batch.text, encoder_hidden_states_mask=batch.text_mask,
        img_shapes=[[(1, rows, columns), (1, *behind.shape[2:])]] * len(own), return_dict=False,
    )[0]  # fmt: skip
    return qwenimage.unpack(found[:, : rows * columns].transpose(1, 2).unflatten(2, (rows, columns)))


REFERENCES = (
    Referenced(
        name="kontext", pair=flux_pair.PAIR, make=flux_pair.pair, velocity=flux_velocity, theirs=in_kontext, channels=4,
        reference=4, smaller=(4, 8), is_masked=True, text=flux_pair.TEXT_WIDTH, pooled=flux_pair.POOLED,
    ),
    *(
        Referenced(
            name=str(kind), pair=flux_pair.PAIR, make=partial(made_beside, kind), velocity=velocity_beside,
            theirs=partial(in_beside, pipeline), channels=4, reference=kind.channels(4, FLUX1.grid),
            text=flux_pair.TEXT_WIDTH, pooled=flux_pair.POOLED,
        )
        for kind, pipeline in ((Reference.HOLES, FluxFillPipeline), (Reference.BESIDE, FluxControlPipeline))
    ),
    Referenced(
        name="flux2", pair=flux2_pair.PAIR, make=flux2_pair.pair, velocity=flux2_velocity, theirs=in_flux2,
        channels=flux2_pair.CHANNELS, reference=flux2_pair.CHANNELS, latents=(4, 6), smaller=(3, 5), moves=0.001,
        text=flux2_pair.TEXT_WIDTH,
    ),
    Referenced(
        name="qwen image edit", pair=qwenimage_pair.PAIR, make=qwenimage_pair.pair, velocity=qwenimage_velocity,
        theirs=in_qwenimage_edit, channels=4, reference=4, smaller=(4, 8), is_masked=True, text=qwenimage_pair.TEXT_WIDTH,
    ),
)  # fmt: skip
