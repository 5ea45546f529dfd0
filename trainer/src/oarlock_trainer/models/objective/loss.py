"""The training loss: flow matching on latents.

x_t = (1 - sigma) x_0 + sigma noise, target = noise - x_0, error in float32, mean per sample, then over the batch: what
diffusers' training scripts and SimpleTuner compute. What the model is told of x_t is its family's (`family_code.Velocity`).
With masks each latent pixel's error is multiplied by its own number, and the mean is still over all pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from oarlock_api.objective import Loss, Weighting

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from oarlock_trainer.models.family_code import Velocity

_THRESHOLD = 0.1
"""Where Huber and SmoothL1 go over from quadratic to linear; SimpleTuner's huber_c."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One micro-batch of one rank, all of one size; B samples, C channels, h x w latents, T text tokens.

    bfloat16, as it was encoded: latents (B, C, h, w), text (B, T, t), pooled (B, p). float32: noise (B, C, h, w), sigmas and
    guidance (B,). text_mask (B, T) bool or None where padding is not masked. loss_mask (B, 1, h, w) bfloat16, 0 .. 1, or None
    where all of the pictures counts; reference (B, R, h, w) bfloat16 (`family.Reference`), or None.
    """

    latents: Tensor
    noise: Tensor
    text: Tensor
    pooled: Tensor
    sigmas: Tensor
    guidance: Tensor
    text_mask: Tensor | None
    loss_mask: Tensor | None = None
    reference: Tensor | None = None

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


def flow_matching_loss(
    model: nn.Module, batch: MicroBatch, *, velocity: Velocity, has_guidance: bool, measure: Loss
) -> Tensor:
    """Mean loss of a micro-batch, a float32 scalar, in which all noise levels count the same; see `sample_losses`."""
    return sample_losses(model, batch, velocity=velocity, has_guidance=has_guidance, measure=measure).mean()


def sample_losses(
    model: nn.Module,
    batch: MicroBatch,
    *,
    velocity: Velocity,
    has_guidance: bool,
    measure: Loss,
    base: AbstractContextManager[nn.Module] | None = None,
) -> Tensor:
    """(B,) float32: the loss of each sample. `model` is diffusers' transformer, bare or wrapped.

    With `base`, within which the model is one without its adapters, the target is what that predicts for the same noisy
    latents: nothing is learnt but to stay as it was (SimpleTuner's is_regularisation_data).

    Target, error and mean are float32; the prediction comes in the model's type. Nothing is read back: the host waits for
    the GPU where the caller reads the losses.
    """
    if base is None:
        target = batch.noise.float() - batch.latents.float()
    else:
        with torch.no_grad(), base as untrained:
            target = predict(untrained, batch, velocity=velocity, has_guidance=has_guidance).float()
    prediction = predict(model, batch, velocity=velocity, has_guidance=has_guidance).float()
    return error(prediction, target, measure, batch.loss_mask)


def weighted(losses: Tensor, sigmas: Tensor, weighting: Weighting) -> Tensor:
    """Mean of the losses (B,), each with the weight of its noise level (B,): a float32 scalar.

    The weights are those of diffusers' compute_loss_weighting_for_sd3 (Esser et al. 2024, section 3.1).
    """
    if weighting is Weighting.SIGMA_SQRT:
        losses = losses * sigmas**-2.0
    elif weighting is Weighting.COS_MAP:
        losses = losses * 2.0 / (math.pi * (1.0 - 2.0 * sigmas + 2.0 * sigmas**2))
    return losses.mean()


def predict(model: nn.Module, batch: MicroBatch, *, velocity: Velocity, has_guidance: bool) -> Tensor:
    """(B, C, h, w) in the model's type: the direction that the model sees at the batch's noise levels.

    The noisy latents are mixed in float32; the family rounds them once, to the type of the text, which is the model's.
    """
    sigmas = batch.sigmas.view(-1, 1, 1, 1)
    noisy = (1.0 - sigmas) * batch.latents.float() + sigmas * batch.noise.float()
    given = {} if batch.reference is None else {"reference": batch.reference}
    return velocity(
        model,
        noisy,
        batch.sigmas,
        text=batch.text,
        pooled=batch.pooled,
        text_mask=batch.text_mask,
        guidance=batch.guidance if has_guidance else None,
        **given,
    )


def error(prediction: Tensor, target: Tensor, measure: Loss, mask: Tensor | None = None) -> Tensor:
    """(B,): mean error over all elements of each sample. Both (B, C, h, w) float32.

    Errors are multiplied by `mask` (B, 1, h, w) first: sum(mask x error) / elements, as SimpleTuner has it. A pixel that
    counts so weighs the same in every sample, however much of the others counts (docs/decisions/0075).
    """
    if measure is Loss.MSE:
        each = functional.mse_loss(prediction, target, reduction="none")
    elif measure is Loss.HUBER:
        each = functional.huber_loss(prediction, target, reduction="none", delta=_THRESHOLD)
    else:
        each = functional.smooth_l1_loss(prediction, target, reduction="none", beta=_THRESHOLD)
    return (each if mask is None else each * mask).flatten(1).mean(dim=1)
