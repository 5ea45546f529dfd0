"""The FLUX.2 transformer's forward pass: diffusers' own, with the job's kernel of attention and its recomputed blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.compute import diffusers_pass
from oarlock_trainer.models.compute.joint_attention import JointAttention
from oarlock_trainer.models.flux2.attention import ParallelAttention

if TYPE_CHECKING:
    from oarlock_trainer.models.compute.attention import Attend


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Set both. Modules, parameters and their names stay diffusers'."""
    doubles, singles = transformer.transformer_blocks, transformer.single_transformer_blocks
    for block in doubles:
        block.attn.set_processor(JointAttention(attend))
    for block in singles:
        block.attn.set_processor(ParallelAttention(attend))
    diffusers_pass.install(transformer, [*doubles, *singles], recomputed=recomputed)
