"""The forward pass of diffusers' SD3Transformer2DModel, with our attention and with blocks that may be recomputed.

Modules, their names and the blocks' own forward passes stay diffusers'. The model's is written once more for two reasons:
which blocks are recomputed is a number, not all or none, and blocks are called by position, as what is compiled is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.compute.recompute import call

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Give diffusers' transformer our forward pass. Its first `recomputed` blocks recompute their activations."""
    transformer.set_attn_processor(JointAttention(attend))
    transformer.forward = Forward(transformer, recomputed=recomputed)


class Forward:
    """Takes the place of the model's `forward`."""

    def __init__(self, transformer: Any, *, recomputed: int) -> None:
        self._transformer = transformer
        self.recomputed = recomputed

    def __call__(  # noqa: PLR0917 - diffusers' own signature
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        pooled_projections: Tensor,
        timestep: Tensor,
        joint_attention_kwargs: dict[str, Any] | None = None,
        return_dict: bool = True,  # noqa: FBT001, FBT002
    ) -> Any:
        """Predict the velocity. The arguments are those of diffusers' forward, less ControlNet and skipped layers.

        hidden_states (B, C, h, w), encoder_hidden_states (B, T, t), pooled_projections (B, p), timestep (B,) 0..1000,
        joint_attention_kwargs: attention_mask (B, 1, 1, N + T) bool, or nothing. Returns (B, C, h, w), in the weights' type,
        in a tuple or in diffusers' output.
        """
        model, patch = self._transformer, self._transformer.config.patch_size
        if unknown := set(joint_attention_kwargs or {}) - {"attention_mask"}:
            raise ValueError(f"joint_attention_kwargs: this forward pass does not know {', '.join(sorted(unknown))}")
        rows, columns = (edge // patch for edge in hidden_states.shape[-2:])
        image = model.pos_embed(hidden_states).contiguous()
        modulation = model.time_text_embed(timestep, pooled_projections)
        text = model.context_embedder(encoder_hidden_states)
        for number, block in enumerate(model.transformer_blocks):
            text, image = call(
                block, image, text, modulation, joint_attention_kwargs, recomputed=number < self.recomputed
            )
        tokens = model.proj_out(model.norm_out(image, modulation))
        patches = tokens.unflatten(2, (patch, patch, -1)).unflatten(1, (rows, columns))
        output = patches.permute(0, 5, 1, 3, 2, 4).reshape(len(tokens), -1, rows * patch, columns * patch)
        if not return_dict:
            return (output,)
        from diffusers.models.modeling_outputs import Transformer2DModelOutput  # noqa: PLC0415 - only for pipelines

        return Transformer2DModelOutput(sample=output)


class JointAttention:
    """Takes the place of diffusers' JointAttnProcessor2_0, which chooses no kernel and knows no mask."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attention of the image's tokens (B, N, d), and of the text's (B, T, d) where there are any; returns what came.

        attention_mask (B, 1, 1, N + T) bool, True where a key is seen: of both together, and not for the image alone.
        """
        query, key, value = (
            layer(hidden_states).unflatten(-1, (attn.heads, -1)) for layer in (attn.to_q, attn.to_k, attn.to_v)
        )
        query, key = _normed(attn.norm_q, query), _normed(attn.norm_k, key)
        if encoder_hidden_states is None:
            alone: Tensor = attn.to_out[0](self._attend(query, key, value, None))
            return alone
        text_query, text_key, text_value = (
            layer(encoder_hidden_states).unflatten(-1, (attn.heads, -1))
            for layer in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        )
        seen = self._attend(
            torch.cat([query, _normed(attn.norm_added_q, text_query)], dim=1),
            torch.cat([key, _normed(attn.norm_added_k, text_key)], dim=1),
            torch.cat([value, text_value], dim=1),
            attention_mask,
        )
        image, text = seen.split_with_sizes([hidden_states.shape[1], encoder_hidden_states.shape[1]], dim=1)
        return attn.to_out[0](image), text if attn.context_pre_only else attn.to_add_out(text)


def _normed(norm: Any, heads: Tensor) -> Tensor:
    """(B, S, H, D) -> the same: not all models of this class have these norms."""
    normed: Tensor = heads if norm is None else norm(heads)
    return normed
