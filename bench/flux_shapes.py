"""FLUX.1 transformers of any number of blocks with random weights, and the inputs of a training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.velocity import image_ids

HEAD = 128
POOLED_WIDTH, CHANNELS = 768, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one step computes; `pixels` is the side of square pictures."""

    double: int
    single: int
    width: int
    text_width: int
    pixels: int
    text_tokens: int
    batch: int

    @property
    def tokens(self) -> int:
        """Of a sample, text and image."""
        return (self.pixels // 16) ** 2 + self.text_tokens

    @property
    def blocks(self) -> int:
        """Of both kinds."""
        return self.double + self.single


def make_model(work: Work, *, device: torch.device, dtype: torch.dtype) -> Any:
    """Diffusers' transformer in training mode; the same weights each time."""
    torch.manual_seed(0)
    with torch.device(device):
        model = imported(FLUX1.transformer)(
            in_channels=CHANNELS,
            num_layers=work.double,
            num_single_layers=work.single,
            attention_head_dim=HEAD,
            num_attention_heads=work.width // HEAD,
            joint_attention_dim=work.text_width,
            pooled_projection_dim=POOLED_WIDTH,
            guidance_embeds=True,
            axes_dims_rope=(16, 56, 56),
        )
    return torch.nn.Module.to(model, dtype).train()


def make_inputs(work: Work, *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of a forward pass. The ids are the same tensors in each step, as in training."""
    torch.manual_seed(1)
    rows = work.pixels // 16

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(work.batch, *shape, device=device, dtype=dtype)

    return {
        "hidden_states": random(rows * rows, CHANNELS),
        "encoder_hidden_states": random(work.text_tokens, work.text_width),
        "pooled_projections": random(POOLED_WIDTH),
        "timestep": torch.full((work.batch,), 0.5, device=device, dtype=dtype),
        "guidance": torch.full((work.batch,), 3.5, device=device, dtype=dtype),
        "img_ids": image_ids(2 * rows, 2 * rows, device),
        "txt_ids": torch.zeros(work.text_tokens, 3, device=device),
        "return_dict": False,
    }


def step(model: Any, given: dict[str, Any]) -> None:
    """Forward and backward; gradients are dropped."""
    model(**given)[0].float().square().mean().backward()
    model.zero_grad(set_to_none=True)
