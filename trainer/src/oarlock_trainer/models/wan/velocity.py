"""What a Wan transformer is given and says: latents as a video, and a thousand times the noise level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.wan.latents import joined, parted

if TYPE_CHECKING:
    from torch import Tensor, nn


def velocity(
    model: nn.Module,
    noisy: Tensor,
    sigmas: Tensor,
    *,
    text: Tensor,
    pooled: Tensor,
    text_mask: Tensor | None,
    guidance: Tensor | None,
) -> Tensor:
    """See `family_code.Velocity`; `model` is diffusers' WanTransformer3DModel, with our forward pass where text is masked.

    Latents are (B, C f, h, w), of f frames (latents.py); in Wan 2.1 C = 16. The model is told a thousand times sigma, in
    float32: its sinusoids are computed of that.
    """
    del pooled, guidance  # it has no input for either
    bare: Any = getattr(model, "module", model)  # engines have there what they wrap, and configurations of their own
    predicted: Tensor = model(
        hidden_states=parted(noisy.to(text.dtype), bare.config.in_channels),
        timestep=1000.0 * sigmas,
        encoder_hidden_states=text if text_mask is None else (text, text_mask[:, None, None, :]),
        return_dict=False,
    )[0]
    return joined(predicted)
