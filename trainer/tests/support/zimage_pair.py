"""The same small Z-Image transformer twice: as diffusers computes it, and with our forward pass; and batches for both."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from forward_pairs import Case, Pair

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.zimage.family import Z_IMAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANNELS, TEXT_WIDTH = 4, 32


def pair() -> tuple[Any, Any]:
    """Two models with the same random weights, both diffusers' own. What begins as ones or zeros is neither here."""
    torch.manual_seed(0)
    model = imported(Z_IMAGE.transformer)(
        in_channels=CHANNELS, dim=64, n_layers=2, n_refiner_layers=1, n_heads=4, n_kv_heads=4, cap_feat_dim=TEXT_WIDTH,
        axes_dims=[4, 6, 6], axes_lens=[128, 32, 32],
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if "pad_token" in name:
            torch.nn.init.normal_(parameter)
        elif parameter.ndim == 1 and "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, copy.deepcopy(model)


def batch(*, lengths: Sequence[int] = (9,), height: int = 8, width: int = 12) -> dict[str, Any]:
    """Arguments of diffusers' forward pass: latents of height x width, a sample with a text of each length."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    return {
        "x": [random(CHANNELS, 1, height, width) for _ in lengths],
        "t": torch.linspace(0.25, 0.75, len(lengths)),
        "cap_feats": [random(length, TEXT_WIDTH) for length in lengths],
        "return_dict": False,
    }


IMAGE, TEXT = "x_pad_token", "cap_pad_token"
"""What stands for padding, of the image's tokens and of a text's: each stream is filled up to a multiple of 32."""
PAIR = Pair(
    key=ModelFamily.Z_IMAGE, make=pair, batch=batch,
    cases=(
        Case(name="one"),
        Case(
            name="nothing is padded", batch={"lengths": (32,), "height": 16, "width": 16}, idle=frozenset({IMAGE, TEXT})
        ),
        Case(name="several lengths", batch={"lengths": (9, 40, 32)}),
        Case(name="one padded length", batch={"lengths": (5, 17, 30), "height": 12, "width": 4}),
        Case(name="one length", batch={"lengths": (33, 33), "height": 16, "width": 8}, idle=frozenset({IMAGE})),
    ),
    usual=Case(name="two lengths", batch={"lengths": (9, 40)}), rounded=("x", "cap_feats"), bfloat16=0.03,
    recomputed=(0, 1, 2, 4), adapted=("feed_forward.w2",), leaves_out=True,
)  # fmt: skip
