"""What a Z-Image transformer is given and says."""

from __future__ import annotations

import torch
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
    """See `family_code.Velocity`; `model` is diffusers' ZImageTransformer2DModel, with our forward pass where text is masked.

    Z-Image looks from the noise to the picture: it is told 1 - sigma, as float32, and its answer is negated. Each picture is
    one of a single frame. In Z-Image C = 16.
    """
    del pooled, guidance  # it has no input for either
    masked = {} if text_mask is None else {"text_mask": text_mask}
    found: list[Tensor] = model(
        x=noisy.to(text.dtype)[:, :, None], t=1.0 - sigmas, cap_feats=text, return_dict=False, **masked
    )[0]
    return -torch.stack(found)[:, :, 0]
