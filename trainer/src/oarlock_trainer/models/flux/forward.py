"""The FLUX.1 transformer's forward pass of our own, on a FluxTransformer2DModel of diffusers as it is.

Modules, parameters and their names stay diffusers': ZeRO, LoRA, checkpoints and the export see the model that they know.
Only `forward` of the model and of its blocks are set on the instances. Text and image become one sequence once, before
the single blocks. The result is that of diffusers' forward: in float32 to 1e-5, forward and backward.

In FLUX.1 c = 64, d = 3072 (24 heads of 128), t = 4096, p = 768, T = 512 (Schnell: 256), and N = 4096 for 1024 x 1024 pixels.
All is computed in the type of the weights, bfloat16 in a job, but for what `blocks` and `rotary` name. Nothing is read back.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from oarlock_trainer.models.compute.recompute import call
from oarlock_trainer.models.flux.blocks import Common, double_block, single_block
from oarlock_trainer.models.flux.rotary import RotaryTables

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Give diffusers' transformer our forward pass. Its first `recomputed` blocks recompute their activations."""
    for block in transformer.transformer_blocks:
        block.forward = MethodType(double_block, block)
    for block in transformer.single_transformer_blocks:
        block.forward = MethodType(single_block, block)
    transformer.forward = Forward(transformer, attend=attend, recomputed=recomputed)


class Forward:
    """Takes the place of the model's `forward`."""

    def __init__(self, transformer: Any, *, attend: Attend, recomputed: int) -> None:
        self._transformer = transformer
        self._tables = RotaryTables(transformer.pos_embed)
        self.attend = attend
        self.recomputed = recomputed

    def __call__(  # noqa: PLR0917 - diffusers' own signature
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        pooled_projections: Tensor,
        timestep: Tensor,
        img_ids: Tensor,
        txt_ids: Tensor,
        guidance: Tensor | None = None,
        joint_attention_kwargs: dict[str, Any] | None = None,
        return_dict: bool = True,  # noqa: FBT001, FBT002
    ) -> Any:
        """Predict the velocity. The arguments are those of diffusers' forward, less ControlNet and IP-Adapter.

        hidden_states (B, N, c), encoder_hidden_states (B, T, t), pooled_projections (B, p), timestep and guidance (B,),
        img_ids (N, 3), txt_ids (T, 3), joint_attention_kwargs: attention_mask (B, 1, 1, T + N) bool, or nothing.
        Returns (B, N, c), in the weights' type, in a tuple or in diffusers' output.
        """
        model = self._transformer
        image = model.x_embedder(hidden_states)
        # Rounded to the weights' type before they are multiplied, as diffusers has it. Their sinusoids are float32.
        levels = [level.to(image.dtype) * 1000 for level in (timestep, guidance) if level is not None]
        modulation = functional.silu(model.time_text_embed(*levels, pooled_projections))
        text = model.context_embedder(encoder_hidden_states)
        common = Common(modulation, self._tables.of(txt_ids, img_ids), _mask(joint_attention_kwargs), self.attend)
        number = 0
        for block in model.transformer_blocks:
            image, text = call(block, image, text, common, recomputed=number < self.recomputed)
            number += 1
        tokens = torch.cat([text, image], dim=1)
        for block in model.single_transformer_blocks:
            tokens = call(block, tokens, common, recomputed=number < self.recomputed)
            number += 1
        image = tokens[:, text.shape[1] :]
        scale, shift = model.norm_out.linear(modulation)[:, None].chunk(2, dim=-1)
        output = model.proj_out(torch.addcmul(shift, model.norm_out.norm(image), 1 + scale))
        if not return_dict:
            return (output,)
        from diffusers.models.modeling_outputs import Transformer2DModelOutput  # noqa: PLC0415 - only for pipelines

        return Transformer2DModelOutput(sample=output)


def _mask(given: dict[str, Any] | None) -> Tensor | None:
    rest = dict(given or {})
    mask: Tensor | None = rest.pop("attention_mask", None)
    if rest:
        raise ValueError(f"joint_attention_kwargs: this forward pass does not know {', '.join(rest)}")
    return mask
