"""The same small Stable Diffusion 3.5 twice: for diffusers' forward pass and for ours; and batches for both."""

from __future__ import annotations

import copy
from typing import Any

import torch
from forward_pairs import Case, Pair

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.sd3.family import STABLE_DIFFUSION_3

CHANNELS, TEXT_WIDTH, POOLED = 4, 32, 24
DUAL = (0, 1)
"""As Medium has it: the first blocks."""


def pair(*, dual: tuple[int, ...] = DUAL, norms: bool = True, layers: int = 4) -> tuple[Any, Any]:
    """Two models with the same random weights, both diffusers' own. Norms' weights are no ones, or they'd not be seen."""
    torch.manual_seed(0)
    model = imported(STABLE_DIFFUSION_3.transformer)(
        sample_size=16, in_channels=CHANNELS, out_channels=CHANNELS, num_layers=layers, attention_head_dim=16,
        num_attention_heads=4, joint_attention_dim=TEXT_WIDTH, caption_projection_dim=64, pooled_projection_dim=POOLED,
        pos_embed_max_size=16, dual_attention_layers=dual, qk_norm="rms_norm" if norms else None,
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if "norm_" in name and name.count(".") > 2 and parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, copy.deepcopy(model)


def batch(*, size: int = 1, height: int = 8, width: int = 12, text: int = 9) -> dict[str, Any]:
    """Arguments of a forward pass: latents of height x width."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    return {
        "hidden_states": random(size, CHANNELS, height, width),
        "encoder_hidden_states": random(size, text, TEXT_WIDTH),
        "pooled_projections": random(size, POOLED),
        "timestep": torch.linspace(250.0, 500.0, size),
        "return_dict": False,
    }


LAST = frozenset(f"transformer_blocks.3.attn.{name}" for name in ("add_q_proj.weight", "add_q_proj.bias"))
"""The last block's queries of the text reach nothing."""
NORMED = LAST | {"transformer_blocks.3.attn.norm_added_q.weight"}
PAIR = Pair(
    key=ModelFamily.STABLE_DIFFUSION_3, make=pair, batch=batch,
    cases=tuple(
        Case(
            name=f"{size} of {height} x {width} {name}", variant={"dual": dual, "norms": norms},
            batch={"size": size, "height": height, "width": width}, idle=NORMED if norms else LAST,
        )
        for size, height, width in ((1, 8, 8), (3, 12, 4))
        for name, dual, norms in (("large", (), True), ("medium", DUAL, True), ("without norms", (), False))
    ),
    usual=Case(name="two", batch={"size": 2}, idle=NORMED), bfloat16=0.02,
    rounded=("hidden_states", "encoder_hidden_states", "pooled_projections"), recomputed=(0, 1, 3, 4),
    adapted=("attn2.to_q",),
)  # fmt: skip
