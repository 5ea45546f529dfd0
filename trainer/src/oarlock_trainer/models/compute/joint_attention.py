"""Attention of text and image together, with the job's kernel: what diffusers' processors of FLUX.1 and FLUX.2 compute.

Everything is looked up in the modules at each call, so that LoRA layers and other linear layers may take their places.
B samples, T text and N image tokens, d wide. The mask is (B, 1, 1, T + N) bool, True where a key is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend

Rotary = tuple["Tensor", "Tensor"]


class RotaryAttention:
    """What all of them share: positions, and the kernel."""

    def __init__(self, attend: Attend) -> None:
        from diffusers.models.embeddings import apply_rotary_emb  # noqa: PLC0415 - a second of imports

        self._attend, self._rotate = attend, apply_rotary_emb

    def seen(self, query: Tensor, key: Tensor, value: Tensor, *, rotary: Rotary, mask: Tensor | None) -> Tensor:
        """(B, T + N, H, D) three times -> (B, T + N, d)."""
        query, key = (self._rotate(one, rotary, sequence_dim=1) for one in (query, key))
        return self._attend(query, key, value, mask)


class JointAttention(RotaryAttention):
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
            [attn.norm_added_q(heads(attn.add_q_proj(text), attn)), attn.norm_q(heads(attn.to_q(image), attn))], 1
        )
        key = torch.cat(
            [attn.norm_added_k(heads(attn.add_k_proj(text), attn)), attn.norm_k(heads(attn.to_k(image), attn))], 1
        )
        value = torch.cat([heads(attn.add_v_proj(text), attn), heads(attn.to_v(image), attn)], 1)
        seen = self.seen(query, key, value, rotary=image_rotary_emb, mask=attention_mask)
        of_text, of_image = seen.split_with_sizes([text.shape[1], image.shape[1]], dim=1)
        return attn.to_out[0](of_image), attn.to_add_out(of_text)


def heads(states: Tensor, attn: Any) -> Tensor:
    """(B, S, H x D) -> (B, S, H, D)."""
    return states.view(*states.shape[:-1], -1, attn.head_dim)
