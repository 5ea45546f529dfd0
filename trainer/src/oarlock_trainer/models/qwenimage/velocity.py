"""What a Qwen-Image transformer is given and says: latents packed into tokens, and the sizes of their pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from oarlock_trainer.models.qwenimage.tokens import pack, unpack

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
    reference: Tensor | None = None,
) -> Tensor:
    """See `family_code.Velocity`; `model` is diffusers' QwenImageTransformer2DModel, which is told no guidance. C = 16.

    The model is told sigma, which its pipeline rounds as a thousand times sigma. The mask is given to attention itself, text
    first: diffusers' own argument for it would have the host wait for the GPU, to look for a length that nobody asks.
    A reference's tokens stand behind the picture's own, as a second picture, and nothing is predicted for them.
    """
    del pooled, guidance  # it has no input for either
    pictures = [pack(one.to(text.dtype)) for one in (noisy, reference) if one is not None]
    rows, columns = pictures[0].shape[2:]
    given = torch.cat([one.flatten(2).transpose(1, 2) for one in pictures], dim=1)
    arguments: dict[str, Any] = {}
    if text_mask is not None:
        mask = pad(text_mask, (0, given.shape[1]), value=True)
        arguments["attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    tokens: Tensor = model(
        hidden_states=given,
        encoder_hidden_states=text,
        timestep=(1000.0 * sigmas).to(text.dtype) / 1000,
        img_shapes=[[(1, *one.shape[2:]) for one in pictures]] * len(noisy),
        return_dict=False,
        **arguments,
    )[0]
    own = tokens[:, : rows * columns].transpose(1, 2)
    return unpack(own.reshape(len(tokens), -1, rows, columns))
