"""The FLUX.1 training loss: flow matching on packed latents.

x_t = (1 - sigma) x_0 + sigma noise, target = noise - x_0, error in float32, mean per sample, then over the batch: what
diffusers' FLUX scripts and SimpleTuner compute. The model is told sigma itself (diffusers multiplies it by 1000).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from oarlock_api.objective import Loss, Weighting

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

_THRESHOLD = 0.1
"""Where Huber and SmoothL1 go over from quadratic to linear; SimpleTuner's huber_c."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One micro-batch of one rank, all of one size; B samples, C channels, h x w latents, T text tokens.

    bfloat16, as it was encoded: latents (B, C, h, w), text (B, T, t), pooled (B, p). float32: noise (B, C, h, w), sigmas and
    guidance (B,). text_mask (B, T) bool or None where padding is not masked. In FLUX.1 C = 16.
    """

    latents: Tensor
    noise: Tensor
    text: Tensor
    pooled: Tensor
    sigmas: Tensor
    guidance: Tensor
    text_mask: Tensor | None

    def to(self, device: torch.device) -> MicroBatch:
        """The same batch on a device. Out of pinned memory the host does not wait for the copies."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> MicroBatch:
        """The same batch in memory that a GPU copies from by itself, while the CPU goes on."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> MicroBatch:
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: None if tensor is None else change(tensor) for name, tensor in tensors.items()}
        return MicroBatch(**changed)


def pack(latents: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h/2 x w/2, 4 C): a token is a patch of 2 x 2."""
    batch, channels, height, width = latents.shape
    patches = latents.reshape(batch, channels, height // 2, 2, width // 2, 2)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, (height // 2) * (width // 2), 4 * channels)


@cache
def image_ids(height: int, width: int, device: torch.device) -> Tensor:
    """(h/2 x w/2, 3) float32: 0, row and column of each token of h x w latents.

    The same tensor each time: see `RotaryTables`.
    """
    rows, columns = torch.arange(height // 2, device=device), torch.arange(width // 2, device=device)
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).reshape(-1, 2)
    return torch.cat([torch.zeros_like(grid[:, :1]), grid], dim=1).to(torch.float32)


@cache
def text_ids(tokens: int, device: torch.device) -> Tensor:
    """(tokens, 3) float32: text has no place in the picture. The same tensor each time."""
    return torch.zeros(tokens, 3, device=device)


def flow_matching_loss(model: nn.Module, batch: MicroBatch, *, has_guidance: bool, measure: Loss) -> Tensor:
    """Mean loss of a micro-batch, a float32 scalar, in which all noise levels count the same; see `sample_losses`."""
    return sample_losses(model, batch, has_guidance=has_guidance, measure=measure).mean()


def sample_losses(
    model: nn.Module,
    batch: MicroBatch,
    *,
    has_guidance: bool,
    measure: Loss,
    base: AbstractContextManager[nn.Module] | None = None,
) -> Tensor:
    """(B,) float32: the loss of each sample. `model` is diffusers' FluxTransformer2DModel, bare or wrapped.

    With `base`, within which the model is one without its adapters, the target is what that predicts for the same noisy
    latents: nothing is learnt but to stay as it was (SimpleTuner's is_regularisation_data).

    Target, error and mean are float32; the prediction comes in the model's type. Nothing is read back: the host waits for
    the GPU where the caller reads the losses.
    """
    if base is None:
        target = pack(batch.noise.float() - batch.latents.float())
    else:
        with torch.no_grad(), base as untrained:
            target = predict(untrained, batch, has_guidance=has_guidance).float()
    return error(predict(model, batch, has_guidance=has_guidance).float(), target, measure)


def weighted(losses: Tensor, sigmas: Tensor, weighting: Weighting) -> Tensor:
    """Mean of the losses (B,), each with the weight of its noise level (B,): a float32 scalar.

    The weights are those of diffusers' compute_loss_weighting_for_sd3 (Esser et al. 2024, section 3.1).
    """
    if weighting is Weighting.SIGMA_SQRT:
        losses = losses * sigmas**-2.0
    elif weighting is Weighting.COS_MAP:
        losses = losses * 2.0 / (math.pi * (1.0 - 2.0 * sigmas + 2.0 * sigmas**2))
    return losses.mean()


def predict(model: nn.Module, batch: MicroBatch, *, has_guidance: bool) -> Tensor:
    """(B, tokens, 4 C) in the model's type: the direction that the model sees at the batch's noise levels.

    The noisy latents are mixed in float32 and rounded once, to the type of the text, which is the model's.
    """
    sigmas = batch.sigmas.view(-1, 1, 1, 1)
    latents, noise = batch.latents.float(), batch.noise.float()
    noisy = (1.0 - sigmas) * latents + sigmas * noise
    height, width = latents.shape[-2:]
    arguments = {}
    if batch.text_mask is not None:
        tokens = (height // 2) * (width // 2)
        every_image_token = batch.text_mask.new_ones(len(batch.text_mask), tokens)
        mask = torch.cat([batch.text_mask, every_image_token], dim=1)
        arguments["joint_attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    prediction: Tensor = model(
        hidden_states=pack(noisy).to(batch.text.dtype),
        encoder_hidden_states=batch.text,
        pooled_projections=batch.pooled,
        timestep=batch.sigmas.to(batch.text.dtype),
        guidance=batch.guidance.to(batch.text.dtype) if has_guidance else None,
        img_ids=image_ids(height, width, latents.device),
        txt_ids=text_ids(batch.text.shape[1], latents.device),
        return_dict=False,
        **arguments,
    )[0]
    return prediction


def error(prediction: Tensor, target: Tensor, measure: Loss) -> Tensor:
    """(B,): mean error over all elements of each sample. Both (B, tokens, channels) float32."""
    if measure is Loss.MSE:
        each = functional.mse_loss(prediction, target, reduction="none")
    elif measure is Loss.HUBER:
        each = functional.huber_loss(prediction, target, reduction="none", delta=_THRESHOLD)
    else:
        each = functional.smooth_l1_loss(prediction, target, reduction="none", beta=_THRESHOLD)
    return each.flatten(1).mean(dim=1)
