"""Attention of FLUX.1's blocks with one set of weights, with the job's kernel: in place of diffusers' processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.compute.joint_attention import RotaryAttention, heads

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.joint_attention import Rotary


class SingleAttention(RotaryAttention):
    """The last product is the block's own: it takes the feed-forward part as well."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: None,
        attention_mask: Tensor | None,
        image_rotary_emb: Rotary,
    ) -> Tensor:
        """(B, T + N, d), text first -> the same shape. The mask as of JointAttention."""
        del encoder_hidden_states
        query = attn.norm_q(heads(attn.to_q(hidden_states), attn))
        key = attn.norm_k(heads(attn.to_k(hidden_states), attn))
        value = heads(attn.to_v(hidden_states), attn)
        return self.seen(query, key, value, rotary=image_rotary_emb, mask=attention_mask)
