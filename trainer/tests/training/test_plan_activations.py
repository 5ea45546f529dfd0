"""What a block keeps for the backward pass, asked of autograd on the CPU and of a GPU's allocator."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_trainer import warm
from oarlock_trainer.plan.activations import kept_bytes, working_bytes

warm.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel  # noqa: E402

_BFLOAT16 = torch.bfloat16
_TEXT, _SIDE = 128, 32
_TOKENS = _TEXT + _SIDE**2


def make_transformer(*, double: int, single: int, heads: int) -> Any:
    return torch.nn.Module.to(
        FluxTransformer2DModel(
            num_layers=double, num_single_layers=single, num_attention_heads=heads, joint_attention_dim=64,
            pooled_projection_dim=64, guidance_embeds=True,
        ),
        _BFLOAT16,
    )  # fmt: skip


def forward(transformer: Any, *, text: int, side: int, device: str = "cpu") -> Any:
    def some(*shape: int) -> Any:
        return torch.rand(*shape, dtype=_BFLOAT16, device=device)

    return transformer(
        hidden_states=some(1, side**2, 64), encoder_hidden_states=some(1, text, 64), pooled_projections=some(1, 64),
        timestep=some(1), guidance=some(1), img_ids=torch.zeros(side**2, 3, device=device),
        txt_ids=torch.zeros(text, 3, device=device), return_dict=False,
    )[0]  # fmt: skip


def widths_kept(*, double: int, single: int) -> float:
    """bfloat16 values a token and width that autograd keeps of the whole model, weights apart."""
    heads = 4
    transformer = make_transformer(double=double, single=single, heads=heads)
    weights = {weight.untyped_storage().data_ptr() for weight in transformer.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward(transformer, text=_TEXT, side=_SIDE)
    sizes = [
        tensor.untyped_storage().nbytes()
        for place, tensor in kept.items()
        if place not in weights and tensor.dtype == _BFLOAT16
    ]
    return sum(sizes) / (_TOKENS * heads * 128 * 2)


def test_an_eager_block_keeps_no_more_than_is_planned_for() -> None:
    planned = kept_bytes(blocks=1, recomputed=0, tokens=1, samples=1, width=1, compiled=False) / 2
    one_each = widths_kept(double=1, single=1)
    for more in ({"double": 2, "single": 1}, {"double": 1, "single": 2}):
        norms = 2  # queries and keys as they come into their norms, which the CPU keeps as float32
        assert 0.7 * planned < widths_kept(**more) - one_each + norms <= planned


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("recomputed", [0, 6])
def test_a_gpu_needs_no_more_than_is_planned_for_and_not_much_less(recomputed: int) -> None:
    text, side = 512, 64
    transformer = make_transformer(double=2, single=4, heads=24).cuda().train()
    if recomputed:
        transformer.enable_gradient_checkpointing()
    for _ in range(2):  # the first pass also makes the gradients
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        forward(transformer, text=text, side=side, device="cuda").float().square().mean().backward()
    tokens, width = text + side**2, transformer.inner_dim
    planned = kept_bytes(blocks=6, recomputed=recomputed, tokens=tokens, samples=1, width=width, compiled=False)
    planned += working_bytes(tokens=tokens, samples=1, width=width, compiled=False)
    assert 0.5 * planned < torch.cuda.max_memory_allocated() - before <= planned
