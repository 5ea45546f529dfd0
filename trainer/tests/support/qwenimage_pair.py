"""The same small Qwen-Image transformer twice: for diffusers' forward pass and for ours; and batches for both."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from forward_pairs import Case, Pair

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANNELS, TEXT_WIDTH = 4, 32


def pair(*, layers: int = 3) -> tuple[Any, Any]:
    """Two models with the same random weights, both diffusers' own. Norms' weights are no ones, or they'd not be seen."""
    torch.manual_seed(0)
    model = imported(QWEN_IMAGE.transformer)(
        in_channels=4 * CHANNELS, out_channels=CHANNELS, num_layers=layers, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=TEXT_WIDTH, axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if "norm" in name and parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, copy.deepcopy(model)


def batch(*, lengths: Sequence[int] = (9,), rows: int = 4, columns: int = 6) -> dict[str, Any]:
    """Arguments of diffusers' forward pass: rows x columns tokens, a sample with a text of each length."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    seen = torch.tensor(lengths)[:, None] > torch.arange(max(lengths))
    return {
        "hidden_states": random(len(lengths), rows * columns, 4 * CHANNELS),
        "encoder_hidden_states": random(len(lengths), max(lengths), TEXT_WIDTH),
        "encoder_hidden_states_mask": None if bool(seen.all()) else seen,
        "timestep": torch.linspace(0.25, 0.75, len(lengths)),
        "img_shapes": [[(1, rows, columns)]] * len(lengths),
        "return_dict": False,
    }


LAST = frozenset(
    f"transformer_blocks.2.{name}.{part}"
    for name in ("attn.to_add_out", "attn.add_q_proj", "txt_mlp.net.0.proj", "txt_mlp.net.2")
    for part in ("weight", "bias")
) | {"transformer_blocks.2.attn.norm_added_q.weight"}
"""What the last block makes of the text, which nobody asks."""
PAIR = Pair(
    key=ModelFamily.QWEN_IMAGE, make=pair, batch=batch,
    cases=(
        Case(name="one", idle=LAST),
        Case(name="several lengths", batch={"lengths": (9, 4, 7)}, idle=LAST),
        Case(name="odd sides", batch={"lengths": (5, 12), "rows": 5, "columns": 3}, idle=LAST),
        Case(name="one length", batch={"lengths": (6, 6), "rows": 1, "columns": 8}, idle=LAST),
    ),
    usual=Case(name="two lengths", batch={"lengths": (9, 4)}, idle=LAST), bfloat16=0.03,
    rounded=("hidden_states", "encoder_hidden_states", "timestep"), recomputed=(0, 1, 3), adapted=("txt_mlp.net.2",),
)  # fmt: skip
