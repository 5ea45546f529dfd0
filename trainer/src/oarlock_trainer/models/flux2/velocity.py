"""What a FLUX.2 transformer is given and says: each latent is a token, with its place."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_REFERENCE_PLACE = 10.0
"""Of a first reference, in the pipelines: the models were trained with it."""


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
    """See `family_code.Velocity`; `model` is diffusers' Flux2Transformer2DModel. In FLUX.2 C = 128, and nothing is pooled.

    The model is told sigma itself (diffusers multiplies it by 1000). A reference's tokens stand behind the picture's own, and
    nothing is predicted for them, as in diffusers' pipelines.
    """
    del pooled
    height, width = noisy.shape[2:]
    given, places = _tokens(noisy), image_ids(height, width, noisy.device)
    if reference is not None:
        given = torch.cat([given, _tokens(reference).to(given.dtype)], dim=1)
        places = ids_with_reference((height, width), (reference.shape[2], reference.shape[3]), noisy.device)
    arguments: dict[str, Any] = {}
    if text_mask is not None:
        mask = torch.cat([text_mask, text_mask.new_ones(len(text_mask), given.shape[1])], dim=1)
        arguments["joint_attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    found: Tensor = model(
        hidden_states=given.to(text.dtype),
        encoder_hidden_states=text,
        timestep=sigmas.to(text.dtype),
        guidance=None if guidance is None else guidance.to(text.dtype),
        img_ids=places,
        txt_ids=text_ids(text.shape[1], noisy.device),
        return_dict=False,
        **arguments,
    )[0]
    return found[:, : height * width].transpose(1, 2).reshape(len(found), -1, height, width)


def _tokens(latents: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h x w, C)."""
    return latents.flatten(2).transpose(1, 2)


@cache
def image_ids(height: int, width: int, device: torch.device) -> Tensor:
    """(h x w, 4) float32: 0, row, column and 0 of each latent."""
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).reshape(-1, 2)
    return torch.nn.functional.pad(grid, (1, 1)).to(torch.float32)


@cache
def ids_with_reference(size: tuple[int, int], reference: tuple[int, int], device: torch.device) -> Tensor:
    """The same of latents (h, w) and a reference's behind them, which have 10 in the first place."""
    behind = image_ids(*reference, device).clone()
    behind[:, 0] = _REFERENCE_PLACE
    return torch.cat([image_ids(*size, device), behind])


@cache
def text_ids(tokens: int, device: torch.device) -> Tensor:
    """(tokens, 4) float32: text has no place in the picture, but one in its sequence."""
    return torch.nn.functional.pad(torch.arange(tokens, device=device)[:, None], (3, 0)).to(torch.float32)
