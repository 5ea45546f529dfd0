"""Six families are counted by their classes' own configurations, without code of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.ranks import preload

from .tiny import FLUX1, FLUX2, QWEN_IMAGE, SD_3, WAN, Z_IMAGE, Model

preload.settle_environment()
from oarlock_trainer.plan.counting.count import count  # noqa: E402 - torch reads the environment that was just settled

SD_3_5_MEDIUM = {
    "num_layers": 24, "num_attention_heads": 24, "joint_attention_dim": 4096, "caption_projection_dim": 1536,
    "pos_embed_max_size": 384, "dual_attention_layers": tuple(range(13)), "qk_norm": "rms_norm",
}  # fmt: skip
FAMILIES = [
    (FLUX1, {"guidance_embeds": True}, 11_901_408_320, {"transformer_blocks": 19, "single_transformer_blocks": 38}),
    (FLUX2, {}, 32_223_281_152, {"transformer_blocks": 8, "single_transformer_blocks": 48}),
    (Z_IMAGE, {}, 6_154_908_736, {"noise_refiner": 2, "context_refiner": 2, "layers": 30}),
    (QWEN_IMAGE, {}, 20_430_401_088, {"transformer_blocks": 60}),
    (SD_3, SD_3_5_MEDIUM, 2_243_171_520,
     {"transformer_blocks.0": 13, "transformer_blocks.13": 10, "transformer_blocks.23": 1}),
    (WAN, {}, 14_288_491_584, {"blocks": 40}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "config", "parameters", "blocks"), quick_first(FAMILIES), ids=[one[0].module for one in FAMILIES]
)
def test_a_published_model_is_counted(
    model: Model, config: dict[str, object], parameters: int, blocks: dict[str, int]
) -> None:
    found = count(replace(model, config=config).load(), config, model.description)
    assert found.parameters == parameters
    assert {one.name: one.number for one in found.blocks} == blocks
    # Nearly all that a token meets in a block are its matrices, each once; what scales and shifts samples is met by none.
    for one in found.blocks:
        products = one.forward.matrices
        assert 0 < max(products[1:]) <= 2 * one.parameters
        assert one.backward.matrices == tuple(2 * each for each in products)
        assert 2 * max(one.kept.inputs) < max(one.kept.eager)
    assert found.flops(image=4096, text=512) < 6 * found.parameters * (4096 + 512) * 2
