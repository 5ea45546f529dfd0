"""What a FLUX.1 transformer is given and says: latents packed into tokens, with their places."""

from __future__ import annotations

from functools import cache

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
    reference: Tensor | None = None,
) -> Tensor:
    """See `family_code.Velocity`; `model` is diffusers' FluxTransformer2DModel. In FLUX.1 C = 16.

    A reference's tokens stand behind the picture's own, at places of their own, and nothing is predicted for them: FLUX.1
    Kontext, as by diffusers' FluxKontextPipeline.
    """
    height, width = noisy.shape[2:]
    packed, places = pack(noisy), image_ids(height, width, noisy.device)
    if reference is not None:
        packed = torch.cat([packed, pack(reference.to(packed.dtype))], dim=1)
        places = ids_with_reference((height, width), (reference.shape[2], reference.shape[3]), noisy.device)
    return _said(
        model, noisy, packed, places, sigmas=sigmas, text=text, pooled=pooled, text_mask=text_mask, guidance=guidance
    )


def velocity_beside(
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
    """The same of a model that has its reference in further channels of the picture's tokens, and is never without.

    FLUX.1 Fill, as by diffusers' FluxFillPipeline; Canny and Depth, as by FluxControlPipeline.
    """
    if reference is None:
        raise ValueError("this model is given a reference with each picture")
    packed, places = pack(noisy), image_ids(noisy.shape[2], noisy.shape[3], noisy.device)
    packed = torch.cat([packed, pack(reference.to(packed.dtype))], dim=2)
    return _said(
        model, noisy, packed, places, sigmas=sigmas, text=text, pooled=pooled, text_mask=text_mask, guidance=guidance
    )


def _said(
    model: nn.Module,
    noisy: Tensor,
    packed: Tensor,
    places: Tensor,
    *,
    sigmas: Tensor,
    text: Tensor,
    pooled: Tensor,
    text_mask: Tensor | None,
    guidance: Tensor | None,
) -> Tensor:
    """What the model says of the noise, given these tokens. It is told sigma itself, which diffusers multiplies by 1000."""
    channels, height, width = noisy.shape[1:]
    arguments = {}
    if text_mask is not None:
        every_image_token = text_mask.new_ones(len(text_mask), packed.shape[1])
        mask = torch.cat([text_mask, every_image_token], dim=1)
        arguments["joint_attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    tokens: Tensor = model(
        hidden_states=packed.to(text.dtype),
        encoder_hidden_states=text,
        pooled_projections=pooled,
        timestep=sigmas.to(text.dtype),
        guidance=None if guidance is None else guidance.to(text.dtype),
        img_ids=places,
        txt_ids=text_ids(text.shape[1], noisy.device),
        return_dict=False,
        **arguments,
    )[0]
    return unpack(tokens[:, : (height // 2) * (width // 2)], channels=channels, height=height, width=width)


def pack(latents: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h/2 x w/2, 4 C): a token is a patch of 2 x 2."""
    batch, channels, height, width = latents.shape
    patches = latents.reshape(batch, channels, height // 2, 2, width // 2, 2)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, (height // 2) * (width // 2), 4 * channels)


def unpack(tokens: Tensor, *, channels: int, height: int, width: int) -> Tensor:
    """(B, h/2 x w/2, 4 C) -> (B, C, h, w): the inverse of `pack`."""
    patches = tokens.reshape(len(tokens), height // 2, width // 2, channels, 2, 2)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(len(tokens), channels, height, width)


@cache
def image_ids(height: int, width: int, device: torch.device) -> Tensor:
    """(h/2 x w/2, 3) float32: 0, row and column of each token of h x w latents."""
    rows, columns = torch.arange(height // 2, device=device), torch.arange(width // 2, device=device)
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).reshape(-1, 2)
    return torch.cat([torch.zeros_like(grid[:, :1]), grid], dim=1).to(torch.float32)


@cache
def ids_with_reference(size: tuple[int, int], reference: tuple[int, int], device: torch.device) -> Tensor:
    """The same of latents (h, w) and a reference's behind them, which have 1 in place of 0."""
    behind = image_ids(*reference, device).clone()
    behind[:, 0] = 1.0
    return torch.cat([image_ids(*size, device), behind])


@cache
def text_ids(tokens: int, device: torch.device) -> Tensor:
    """(tokens, 3) float32: text has no place in the picture."""
    return torch.zeros(tokens, 3, device=device)
