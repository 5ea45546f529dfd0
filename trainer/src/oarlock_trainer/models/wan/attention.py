"""Attention of Wan's blocks, with the job's kernel: in place of diffusers' processor.

Everything is looked up in the module at each call, so that LoRA layers and other linear layers may take their places.
B samples, T text and N image tokens, d wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.compute.rotary import rotate

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend

Masked = tuple["Tensor", "Tensor"]
"""Texts (B, T, d), and which of their tokens are seen: (B, 1, 1, T) bool."""


class OwnAttention:
    """Of the image's tokens to each other, and to the text's: diffusers' class for both is one."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | Masked | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: Tensor | None = None,
    ) -> Tensor:
        """Image (B, N, d) -> the same. With a text, masked or not, its tokens are seen in place of the image's own.

        rotary_emb (N, D/2, 2) is that of `Positions`. The attention_mask of diffusers' signature is never given.
        """
        text, mask = (
            encoder_hidden_states
            if isinstance(encoder_hidden_states, tuple)
            else (encoder_hidden_states, attention_mask)
        )
        seen = hidden_states if text is None else text
        query, key, value = (
            one.unflatten(2, (attn.heads, -1))
            for one in (attn.norm_q(attn.to_q(hidden_states)), attn.norm_k(attn.to_k(seen)), attn.to_v(seen))
        )
        if rotary_emb is not None:
            query, key = rotate(query, rotary_emb), rotate(key, rotary_emb)
        found: Tensor = attn.to_out[0](self._attend(query, key, value, mask))
        return found
