"""Stable Diffusion 3.5's parameters, layers, FLOPs and kept activations are those of diffusers' class itself."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.weights import Model
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.sd3.family import STABLE_DIFFUSION_3
from oarlock_trainer.plan.activations import width_bytes
from oarlock_trainer.plan.flops import training_flops
from oarlock_trainer.plan.parameters import whole
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers.models.transformers.transformer_sd3 import SD3Transformer2DModel  # noqa: E402
from torch.nn import functional  # noqa: E402

from oarlock_trainer.models.sd3 import forward  # noqa: E402
from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments  # noqa: E402
from oarlock_trainer.plan.counting.calls import calls, make  # noqa: E402
from oarlock_trainer.plan.counting.count import count  # noqa: E402
from oarlock_trainer.plan.counting.descriptions import STABLE_DIFFUSION_3 as ARGUMENTS  # noqa: E402
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels  # noqa: E402
from oarlock_trainer.plan.counting.kept import kept  # noqa: E402

LARGE: dict[str, Any] = {
    "attention_head_dim": 64, "caption_projection_dim": 2432, "dual_attention_layers": [], "in_channels": 16,
    "joint_attention_dim": 4096, "num_attention_heads": 38, "num_layers": 38, "out_channels": 16, "patch_size": 2,
    "pooled_projection_dim": 2048, "pos_embed_max_size": 192, "qk_norm": "rms_norm", "sample_size": 128,
}  # fmt: skip
MEDIUM = LARGE | {
    "caption_projection_dim": 1536, "dual_attention_layers": list(range(13)), "num_attention_heads": 24, "num_layers": 24,
    "pos_embed_max_size": 384,
}  # fmt: skip
SMALL = LARGE | {
    "caption_projection_dim": 128, "dual_attention_layers": [0, 1], "num_attention_heads": 2, "num_layers": 5,
    "joint_attention_dim": 64, "pos_embed_max_size": 64,
}  # fmt: skip
ODD = SMALL | {"dual_attention_layers": [1, 4], "qk_norm": None, "in_channels": 8, "out_channels": None}
IMAGE, TEXT = 4096, 333


def attend(query: Any, key: Any, value: Any, _mask: None) -> Any:
    """Looked up at each call: counting puts a GPU's kernel there."""
    heads = (query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
    return functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("config", [LARGE, MEDIUM, SMALL, ODD], ids=["large", "medium", "small", "odd"])
def test_every_linear_and_every_parameter_is_counted(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = SD3Transformer2DModel(**config)
    shape = STABLE_DIFFUSION_3.architecture(config)
    assert whole(shape).trained == sum(one.numel() for one in model.parameters())
    assert whole(shape).largest == max(one.numel() for one in model.parameters())
    assert {one.name: (one.inputs, one.outputs) for one in shape.linears} == {
        name: (one.in_features, one.out_features)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }
    assert shape.blocks == config["num_layers"]


def test_the_published_models_are_what_is_planned_for_without_a_configuration() -> None:
    for flavor, config, parameters in ((None, LARGE, 8_056_627_520), ("Medium", MEDIUM, 2_243_171_520)):
        model = Model.model_validate({"family": "StableDiffusion3", "flavor": flavor, "path": "/model"})
        assert family_of(model).published == STABLE_DIFFUSION_3.architecture(config)
        assert whole(family_of(model).published).trained == parameters


def ours(model: Any) -> None:
    forward.install(model, attend=attend)


def test_flops_of_blocks_are_those_that_are_counted() -> None:
    found = count(SD3Transformer2DModel, SMALL, ARGUMENTS, prepare=ours)
    forwards = {"image": IMAGE, "text": TEXT}
    blocks = sum(one.number * 3 * one.forward.at(**forwards) for one in found.blocks)
    shape = STABLE_DIFFUSION_3.architecture(SMALL)
    planned = training_flops(shape, tokens=IMAGE + TEXT, text_share=TEXT / (IMAGE + TEXT))
    modulation = 6 * sum(kind.number * kind.modulation for kind in shape.kinds)  # once a sample
    assert planned + modulation == pytest.approx(blocks, rel=1e-9)


def test_what_a_block_keeps_is_what_is_counted_and_not_much_less() -> None:
    """Eager: what is compiled was counted once in the same way, for it takes a minute."""
    made, shapes = make(SD3Transformer2DModel, SMALL, prepare=ours), Shapes(rows=32, columns=32, text=83, batch=2)
    config: Any = made.model.config
    device, dtype = torch.device("meta"), torch.bfloat16
    shape = STABLE_DIFFUSION_3.architecture(SMALL)
    one = width_bytes(tokens=shapes.image + shapes.text, samples=shapes.batch, width=shape.width)
    assert len(made.kinds) == len(shape.kinds) == 3
    with gpu_kernels():
        called = calls(made, call_arguments(ARGUMENTS, shapes, config, device=device, dtype=dtype))
        for (kind, block), planned in zip(made.kinds.items(), shape.kinds, strict=True):
            assert 0.95 * planned.kept.eager < kept(block, called[kind]) / one <= planned.kept.eager
