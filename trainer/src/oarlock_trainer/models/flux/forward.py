"""The FLUX.1 transformer's forward pass: diffusers' own, with the job's kernel of attention and its recomputed blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.compute import diffusers_pass
from oarlock_trainer.models.compute.joint_attention import JointAttention
from oarlock_trainer.models.flux.attention import SingleAttention

if TYPE_CHECKING:
    from torch import Tensor, nn

    from oarlock_trainer.models.compute.attention import Attend


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Set both. Modules, parameters and their names stay diffusers'."""
    doubles, singles = transformer.transformer_blocks, transformer.single_transformer_blocks
    for block in doubles:
        block.attn.set_processor(JointAttention(attend))
    for block in singles:
        block.attn.set_processor(SingleAttention(attend))
    if len(singles):
        singles[0].register_forward_pre_hook(_as_parts_of_one)
    diffusers_pass.install(transformer, [*doubles, *singles], recomputed=recomputed)


def _as_parts_of_one(_block: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Image and text as every further single block gets them, cut from one tensor: one compiled graph does for all."""
    if not given:  # named, where no gradients are wanted: nothing is compiled then
        return None
    image: Tensor = given[0]
    text: Tensor = given[1]
    joined = torch.cat([text, image], dim=1)
    return joined[:, text.shape[1] :], joined[:, : text.shape[1]], *given[2:]
