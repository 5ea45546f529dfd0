"""The two kinds of FLUX.1 blocks, computed on the modules of diffusers' blocks.

What is computed is what diffusers computes; how differs. Modulation and gates are one kernel each. A single block works on
text and image as one sequence, and its last projection takes attention and MLP as they are: diffusers concatenates them
to five times the width first. Everything is looked up in the modules at each call, so that LoRA layers and other linear
layers may take their places.

What goes from module to module has the type of the weights, bfloat16 in a job. Norms and addcmul compute in float32 within
their kernels on a GPU and round once; diffusers' modulation rounds its product and its sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from oarlock_trainer.engine.sharded import is_sharded
from oarlock_trainer.models.compute.attention import Attend
from oarlock_trainer.models.compute.rotary import rotate


class Common(NamedTuple):
    """What all blocks of a forward pass share. A tuple, because torch's compiler and its checkpoints know tuples."""

    modulation: Tensor
    """(B, d), after its SiLU."""
    table: Tensor
    """(T + N, D/2, 2) of `RotaryTables`."""
    mask: Tensor | None
    """(B, 1, 1, T + N) bool, True where a key is seen."""
    attend: Attend


def double_block(block: Any, image: Tensor, text: Tensor, common: Common) -> tuple[Tensor, Tensor]:
    """A block with weights for each of the two streams. image (B, N, d), text (B, T, d); returns both."""
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = _modulation(block.norm1, common, 6)
    text_shift, text_scale, text_gate, text_mlp_shift, text_mlp_scale, text_mlp_gate = _modulation(
        block.norm1_context, common, 6
    )
    attn = block.attn
    states = torch.addcmul(shift, block.norm1.norm(image), 1 + scale)
    text_states = torch.addcmul(text_shift, block.norm1_context.norm(text), 1 + text_scale)
    query = torch.cat(
        [attn.norm_added_q(_heads(attn.add_q_proj(text_states), attn)), attn.norm_q(_heads(attn.to_q(states), attn))], 1
    )
    key = torch.cat(
        [attn.norm_added_k(_heads(attn.add_k_proj(text_states), attn)), attn.norm_k(_heads(attn.to_k(states), attn))], 1
    )
    value = torch.cat([_heads(attn.add_v_proj(text_states), attn), _heads(attn.to_v(states), attn)], 1)
    seen = common.attend(rotate(query, common.table), rotate(key, common.table), value, common.mask)
    text_seen, image_seen = seen.split_with_sizes([text.shape[1], image.shape[1]], dim=1)

    image = torch.addcmul(image, gate, attn.to_out[0](image_seen))
    states = torch.addcmul(mlp_shift, block.norm2(image), 1 + mlp_scale)
    image = torch.addcmul(image, mlp_gate, block.ff(states))

    text = torch.addcmul(text, text_gate, attn.to_add_out(text_seen))
    text_states = torch.addcmul(text_mlp_shift, block.norm2_context(text), 1 + text_mlp_scale)
    text = torch.addcmul(text, text_mlp_gate, block.ff_context(text_states))
    return image, text


def single_block(block: Any, tokens: Tensor, common: Common) -> Tensor:
    """A block with one set of weights. tokens (B, T + N, d), text first -> the same shape. In its MLP (B, T + N, 4 d)."""
    shift, scale, gate = _modulation(block.norm, common, 3)
    attn = block.attn
    states = torch.addcmul(shift, block.norm.norm(tokens), 1 + scale)
    query = rotate(attn.norm_q(_heads(attn.to_q(states), attn)), common.table)
    key = rotate(attn.norm_k(_heads(attn.to_k(states), attn)), common.table)
    seen = common.attend(query, key, _heads(attn.to_v(states), attn), common.mask)
    hidden = block.act_mlp(block.proj_mlp(states))
    return torch.addcmul(tokens, gate, linear_of_two(block.proj_out, seen, hidden))


def _modulation(norm: Any, common: Common, parts: int) -> tuple[Tensor, ...]:
    """(B, d) -> shifts, scales and gates, `parts` times (B, 1, d), in the order of diffusers' chunks."""
    values: Tensor = norm.linear(common.modulation)
    return values[:, None].chunk(parts, dim=-1)


def _heads(states: Tensor, attn: Any) -> Tensor:
    """(B, S, H x D) -> (B, S, H, D)."""
    return states.view(*states.shape[:-1], -1, attn.head_dim)


def linear_of_two(layer: nn.Module, first: Tensor, second: Tensor) -> Tensor:
    """`layer` of both, joined along the last dimension. (B, S, a), (B, S, b) -> (B, S, c).

    They are joined only where `layer` is no plain linear layer (LoRA, float8), or where ZeRO-3 holds its weight elsewhere.
    """
    if type(layer) is nn.Linear and layer.bias is not None and not is_sharded(layer.weight):
        result: Tensor = _LinearOfTwo.apply(first, second, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
        return result
    joined: Tensor = layer(torch.cat([first, second], dim=-1))
    return joined


class _LinearOfTwo(torch.autograd.Function):
    """bias + first W1^T + second W2^T, W1 and W2 being views of one weight.

    weight (c, a + b), bias (c,). In bfloat16 the first product is rounded before the second is added to it. Autograd's own
    way to a gradient of views would fill a whole weight with zeros for each of them, and add both.
    """

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(first, second, weight)
        left, right = weight.split_with_sizes([first.shape[-1], second.shape[-1]], dim=1)
        result = functional.linear(first, left, bias)
        result.flatten(0, 1).addmm_(second.flatten(0, 1), right.t())
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        first, second, weight = ctx.saved_tensors
        wants_first, wants_second, wants_weight, wants_bias = ctx.needs_input_grad
        width = first.shape[-1]
        gradient = gradients[0]
        flat = gradient.flatten(0, 1)
        of_weight = None
        if wants_weight:
            of_weight = torch.empty_like(weight)
            of_weight[:, :width].addmm_(flat.t(), first.flatten(0, 1), beta=0)
            of_weight[:, width:].addmm_(flat.t(), second.flatten(0, 1), beta=0)
        return (
            gradient @ weight[:, :width] if wants_first else None,
            gradient @ weight[:, width:] if wants_second else None,
            of_weight,
            flat.sum(0) if wants_bias else None,
        )
