"""Two FLUX.2 transformers with the same random weights: diffusers' own, and the one that ours is installed in."""

from __future__ import annotations

import copy
from typing import Any

import torch

from oarlock_api.engine import Attention
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.compute.attention import attend_with
from oarlock_trainer.models.flux2 import forward
from oarlock_trainer.models.flux2.family import FLUX2

CHANNELS, TEXT_WIDTH, TEXT = 16, 48, 9


def pair(*, guidance: bool = False) -> tuple[Any, Any]:
    """Norms' weights are no ones, or they'd not be seen."""
    torch.manual_seed(0)
    model = imported(FLUX2.transformer)(
        in_channels=CHANNELS, num_layers=2, num_single_layers=3, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=TEXT_WIDTH, guidance_embeds=guidance, axes_dims_rope=(4, 4, 4, 4),
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if ".norm_" in name and parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, copy.deepcopy(model)


def ours(model: Any, *, recomputed: int = 0) -> Any:
    """The model, with our forward pass installed."""
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    return model
