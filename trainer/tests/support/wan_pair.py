"""The same small Wan transformer twice: for diffusers' forward pass and for ours; and batches for both."""

from __future__ import annotations

import copy
from typing import Any

import torch
from forward_pairs import Case, Pair

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.wan.family import WAN

CHANNELS, TEXT_WIDTH = 4, 32


def pair(*, layers: int = 3) -> tuple[Any, Any]:
    """Two models with the same random weights, both diffusers' own. Norms' weights are no ones, or they'd not be seen."""
    torch.manual_seed(0)
    model = imported(WAN.transformer)(
        num_attention_heads=4, attention_head_dim=16, in_channels=CHANNELS, out_channels=CHANNELS, text_dim=TEXT_WIDTH,
        freq_dim=32, ffn_dim=96, num_layers=layers, rope_max_seq_len=64,
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if "norm" in name and parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, copy.deepcopy(model)


def batch(*, size: int = 1, frames: int = 1, rows: int = 4, columns: int = 6, text: int = 9) -> dict[str, Any]:
    """Arguments of diffusers' forward pass: frames x rows x columns tokens."""
    generator = torch.Generator().manual_seed(1)
    return {
        "hidden_states": torch.randn(size, CHANNELS, frames, 2 * rows, 2 * columns, generator=generator),
        "encoder_hidden_states": torch.randn(size, text, TEXT_WIDTH, generator=generator),
        "timestep": torch.linspace(250.0, 750.0, size),
        "return_dict": False,
    }


PAIR = Pair(
    key=ModelFamily.WAN, make=pair, batch=batch,
    cases=(
        Case(name="a picture"),
        Case(name="a video", batch={"size": 3, "frames": 5}),
        Case(name="odd sides", batch={"size": 2, "frames": 2, "rows": 5, "columns": 3}),
        Case(name="a strip and two words", batch={"size": 2, "frames": 3, "rows": 1, "columns": 8, "text": 2}),
    ),
    usual=Case(name="two videos", batch={"size": 2, "frames": 3}), rounded=("hidden_states", "encoder_hidden_states"),
    bfloat16=0.03, recomputed=(0, 1, 3), adapted=("attn1.to_q", "attn2.to_k", "attn2.to_out.0", "ffn.net.2"),
)  # fmt: skip
