"""Attention of FLUX.2's two kinds of blocks, with the job's kernel: what diffusers' processors compute, put in their place.

Everything is looked up in the modules at each call, so that LoRA layers and other linear layers may take their places.
B samples, T text and N image tokens, d wide. The mask is (B, 1, 1, T + N) bool, True where a key is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.family import ClassName

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend

Rotary = tuple["Tensor", "Tensor"]
_ROTATE = ClassName("diffusers.models.embeddings", "apply_rotary_emb")


class _Attention:
    def __init__(self, attend: Attend) -> None:
        self._attend, self._rotate = attend, imported(_ROTATE)

    def _seen(self, heads: tuple[Tensor, Tensor, Tensor], rotary: Rotary, mask: Tensor | None) -> Tensor:
        """(B, T + N, H, D) three times -> (B, T + N, d)."""
        query, key, value = heads
        query, key = (self._rotate(one, rotary, sequence_dim=1) for one in (query, key))
        return self._attend(query, key, value, mask)


class JointAttention(_Attention):
    """Of a block with weights for each of the two streams."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None,
        image_rotary_emb: Rotary,
    ) -> tuple[Tensor, Tensor]:
        """Image (B, N, d) and text (B, T, d) -> the same, in this order."""
        image, text = hidden_states, encoder_hidden_states
        query = torch.cat(
            [attn.norm_added_q(_heads(attn.add_q_proj(text), attn)), attn.norm_q(_heads(attn.to_q(image), attn))], 1
        )
        key = torch.cat(
            [attn.norm_added_k(_heads(attn.add_k_proj(text), attn)), attn.norm_k(_heads(attn.to_k(image), attn))], 1
        )
        value = torch.cat([_heads(attn.add_v_proj(text), attn), _heads(attn.to_v(image), attn)], 1)
        seen = self._seen((query, key, value), image_rotary_emb, attention_mask)
        of_text, of_image = seen.split_with_sizes([text.shape[1], image.shape[1]], dim=1)
        return attn.to_out[0](of_image), attn.to_add_out(of_text)


class ParallelAttention(_Attention):
    """Of a block with one set of weights, whose first and last products are the feed-forward part's too."""

    def __call__(
        self, attn: Any, hidden_states: Tensor, attention_mask: Tensor | None, image_rotary_emb: Rotary
    ) -> Tensor:
        """(B, T + N, d), text first -> the same shape."""
        made = attn.to_qkv_mlp_proj(hidden_states)
        width = attn.inner_dim
        query, key, value, hidden = made.split_with_sizes([width] * 3 + [made.shape[-1] - 3 * width], dim=-1)
        heads = (attn.norm_q(_heads(query, attn)), attn.norm_k(_heads(key, attn)), _heads(value, attn))
        seen = self._seen(heads, image_rotary_emb, attention_mask)
        result: Tensor = attn.to_out(torch.cat([seen, attn.mlp_act_fn(hidden)], dim=-1))
        return result


def _heads(states: Tensor, attn: Any) -> Tensor:
    """(B, S, H x D) -> (B, S, H, D)."""
    return states.view(*states.shape[:-1], -1, attn.head_dim)
