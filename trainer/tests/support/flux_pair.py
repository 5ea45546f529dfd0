"""The same small FLUX.1 transformer twice: as diffusers computes it, and with our forward pass; and batches for both."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from forward_pairs import Case, Pair

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.velocity import image_ids

if TYPE_CHECKING:
    from torch import Tensor

CHANNELS, TEXT_WIDTH, POOLED = 16, 32, 24


def pair(*, double: int = 2, single: int = 3, guidance: bool = True) -> tuple[Any, Any]:
    """Two models with the same random weights, both diffusers' own. Norms' weights are no ones, or they'd not be seen."""
    torch.manual_seed(0)
    model = imported(FLUX1.transformer)(
        in_channels=CHANNELS, num_layers=double, num_single_layers=single, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=TEXT_WIDTH, pooled_projection_dim=POOLED, guidance_embeds=guidance, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if "norm_" in name and name.count(".") > 2 and parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, copy.deepcopy(model)


def batch(
    *, size: int = 1, height: int = 8, width: int = 12, text: int = 9, guidance: bool = True, masked: bool = False
) -> dict[str, Any]:
    """Arguments of a forward pass: latents of height x width."""
    generator = torch.Generator().manual_seed(1)
    tokens = height * width // 4

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    mask = torch.ones(size, 1, 1, text + tokens, dtype=torch.bool)
    mask[..., text - 3 : text] = False
    return {
        "hidden_states": random(size, tokens, CHANNELS),
        "encoder_hidden_states": random(size, text, TEXT_WIDTH),
        "pooled_projections": random(size, POOLED),
        "timestep": torch.linspace(0.25, 0.5, size),
        "guidance": torch.full((size,), 4.0) if guidance else None,
        "img_ids": image_ids(height, width, torch.device("cpu")),
        "txt_ids": torch.zeros(text, 3),
        "joint_attention_kwargs": {"attention_mask": mask} if masked else None,
        "return_dict": False,
    }


def passes(model: Any, given: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """(prediction, gradient of each trained parameter) of a squared error."""
    model.zero_grad(set_to_none=True)
    prediction = model(**given)[0]
    prediction.float().square().mean().backward()
    return prediction.detach(), {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative distance, in the Euclidean norm."""
    found, wanted = found.detach().float(), wanted.detach().float()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))


def worst(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest distance of any tensor."""
    assert found.keys() == wanted.keys()
    return max(distance(found[name], wanted[name]) for name in wanted)


PAIR = Pair(
    key=ModelFamily.FLUX1, make=pair, batch=batch,
    cases=tuple(
        Case(
            name=f"{size} of {height} x {width}{' guided' * guidance}{' masked' * masked}", variant={"guidance": guidance},
            batch={"size": size, "height": height, "width": width, "guidance": guidance, "masked": masked},
        )
        for size, height, width in ((1, 8, 8), (3, 8, 12), (3, 12, 4))
        for guidance in (True, False)
        for masked in (False, True)
    ),
    usual=Case(name="two", batch={"size": 2}),
    rounded=("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "guidance"),
    bfloat16=0.02, recomputed=(0, 1, 3, 5), targets=("ai-toolkit",), adapted=("proj_out",),
)  # fmt: skip
