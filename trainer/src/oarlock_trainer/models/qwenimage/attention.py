"""Attention of Qwen-Image's blocks, with the job's kernel and real rotary positions: in place of diffusers' processor.

Everything is looked up in the module at each call, so that LoRA layers and other linear layers may take their places.
B samples, T text and N image tokens, d wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from oarlock_trainer.models.compute.rotary import rotate

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend


class JointAttention:
    """Of both streams together, the text's tokens first."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend

    def __call__(  # noqa: PLR0917 - diffusers' own signature
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        encoder_hidden_states_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Image (B, N, d) and text (B, T, d) -> the same, in this order.

        attention_mask (B, 1, 1, T + N) bool, True where a key is seen; encoder_hidden_states_mask (B, T) bool, as diffusers'
        pipelines give it, is the text's alone. image_rotary_emb (T + N, D/2, 2) is that of `Positions`.
        """
        image, text = hidden_states, encoder_hidden_states
        if encoder_hidden_states_mask is not None:
            attention_mask = pad(encoder_hidden_states_mask, (0, image.shape[1]), value=True)[:, None, None, :]

        def heads(layer: Any, states: Tensor) -> Tensor:
            found: Tensor = layer(states).unflatten(-1, (attn.heads, -1))
            return found

        query = torch.cat(
            [attn.norm_added_q(heads(attn.add_q_proj, text)), attn.norm_q(heads(attn.to_q, image))], dim=1
        )
        key = torch.cat([attn.norm_added_k(heads(attn.add_k_proj, text)), attn.norm_k(heads(attn.to_k, image))], dim=1)
        value = torch.cat([heads(attn.add_v_proj, text), heads(attn.to_v, image)], dim=1)
        if image_rotary_emb is not None:
            query, key = rotate(query, image_rotary_emb), rotate(key, image_rotary_emb)
        seen = self._attend(query, key, value, attention_mask)
        of_text, of_image = seen.split_with_sizes([text.shape[1], image.shape[1]], dim=1)
        return attn.to_out[0](of_image), attn.to_add_out(of_text)
