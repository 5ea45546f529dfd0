"""What a FLUX.2 transformer is given and says: each latent is a token, with its place."""

from __future__ import annotations

from functools import cache
from typing import Any

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
    """See `family_code.Velocity`; `model` is diffusers' Flux2Transformer2DModel. In FLUX.2 C = 128, and nothing is pooled.

    The model is told sigma itself (diffusers multiplies it by 1000).
    """
    del pooled
    height, width = noisy.shape[2:]
    arguments: dict[str, Any] = {}
    if text_mask is not None:
        mask = torch.cat([text_mask, text_mask.new_ones(len(text_mask), height * width)], dim=1)
        arguments["joint_attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    tokens: Tensor = model(
        hidden_states=noisy.flatten(2).transpose(1, 2).to(text.dtype),
        encoder_hidden_states=text,
        timestep=sigmas.to(text.dtype),
        guidance=None if guidance is None else guidance.to(text.dtype),
        img_ids=image_ids(height, width, noisy.device),
        txt_ids=text_ids(text.shape[1], noisy.device),
        return_dict=False,
        **arguments,
    )[0]
    return tokens.transpose(1, 2).reshape(len(tokens), -1, height, width)


@cache
def image_ids(height: int, width: int, device: torch.device) -> Tensor:
    """(h x w, 4) float32: 0, row, column and 0 of each latent."""
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).reshape(-1, 2)
    return torch.nn.functional.pad(grid, (1, 1)).to(torch.float32)


@cache
def text_ids(tokens: int, device: torch.device) -> Tensor:
    """(tokens, 4) float32: text has no place in the picture, but one in its sequence."""
    return torch.nn.functional.pad(torch.arange(tokens, device=device)[:, None], (3, 0)).to(torch.float32)
