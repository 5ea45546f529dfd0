"""What a transformer of Stable Diffusion 3.5 is given and says: latents as they are, which it cuts into tokens itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

_PATCH = 2


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
    """See `family_code.Velocity`; `model` is diffusers' SD3Transformer2DModel, which is told no guidance. C = 16.

    The model is told a thousand times sigma, in float32, as by its pipeline. In attention the image comes before the text.
    """
    del guidance
    arguments = {}
    if text_mask is not None:
        image_tokens = (noisy.shape[-2] // _PATCH) * (noisy.shape[-1] // _PATCH)
        mask = torch.cat([text_mask.new_ones(len(text_mask), image_tokens), text_mask], dim=1)
        arguments["joint_attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    direction: Tensor = model(
        hidden_states=noisy.to(text.dtype),
        encoder_hidden_states=text,
        pooled_projections=pooled,
        timestep=1000.0 * sigmas,
        return_dict=False,
        **arguments,
    )[0]
    return direction
