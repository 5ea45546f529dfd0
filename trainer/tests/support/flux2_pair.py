"""The same small FLUX.2 transformer twice: as diffusers computes it, and with our forward pass; and batches for both."""

from __future__ import annotations

import copy
from typing import Any

import torch
from forward_pairs import Case, Pair

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.flux2.family import FLUX2
from oarlock_trainer.models.flux2.velocity import image_ids, text_ids

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


def batch(
    *, size: int = 1, height: int = 4, width: int = 6, guidance: bool = False, masked: bool = False
) -> dict[str, Any]:
    """Arguments of a forward pass: latents of height x width."""
    generator = torch.Generator().manual_seed(1)
    tokens, cpu = height * width, torch.device("cpu")

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    mask = torch.ones(size, 1, 1, TEXT + tokens, dtype=torch.bool)
    mask[..., TEXT - 3 : TEXT] = False
    return {
        "hidden_states": random(size, tokens, CHANNELS),
        "encoder_hidden_states": random(size, TEXT, TEXT_WIDTH),
        "timestep": torch.linspace(0.25, 0.5, size),
        "guidance": torch.full((size,), 4.0) if guidance else None,
        "img_ids": image_ids(height, width, cpu),
        "txt_ids": text_ids(TEXT, cpu),
        "joint_attention_kwargs": {"attention_mask": mask} if masked else None,
        "return_dict": False,
    }


PAIR = Pair(
    key=ModelFamily.FLUX2, make=pair, batch=batch,
    cases=tuple(
        Case(
            name=f"{size} of {height} x {width}{' guided' * guidance}{' masked' * masked}", variant={"guidance": guidance},
            batch={"size": size, "height": height, "width": width, "guidance": guidance, "masked": masked},
        )
        for guidance in (True, False)
        for masked in (False, True)
        for size, height, width in [(1, 4, 4) if guidance is masked else (3, 6, 2)]
    ),
    usual=Case(name="two", batch={"size": 2, "masked": True}), rounded=("hidden_states", "encoder_hidden_states", "timestep"),
    bfloat16=0.02, recomputed=(0, 1, 5), adapted=("to_qkv_mlp_proj",),
)  # fmt: skip
