"""Attention of FLUX.2's blocks with one set of weights, with the job's kernel: in place of diffusers' processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.compute.joint_attention import RotaryAttention, heads

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.joint_attention import Rotary


class ParallelAttention(RotaryAttention):
    """The block's first and last products are the feed-forward part's too."""

    def __call__(
        self, attn: Any, hidden_states: Tensor, attention_mask: Tensor | None, image_rotary_emb: Rotary
    ) -> Tensor:
        """(B, T + N, d), text first -> the same shape. The mask as of JointAttention."""
        made = attn.to_qkv_mlp_proj(hidden_states)
        width = attn.inner_dim
        query, key, value, hidden = made.split_with_sizes([width] * 3 + [made.shape[-1] - 3 * width], dim=-1)
        query, key = attn.norm_q(heads(query, attn)), attn.norm_k(heads(key, attn))
        seen = self.seen(query, key, heads(value, attn), rotary=image_rotary_emb, mask=attention_mask)
        result: Tensor = attn.to_out(torch.cat([seen, attn.mlp_act_fn(hidden)], dim=-1))
        return result
