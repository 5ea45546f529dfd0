"""What a plan takes for granted of Z-Image is what its class has, computes and keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oarlock_trainer.plan.activations import kept_bytes, width_bytes, widths
from oarlock_trainer.plan.flops import attention_flops, matrix_flops
from oarlock_trainer.plan.parameters import read_architecture, whole
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.classes import imported  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.compute.compiled import BUDGET  # noqa: E402
from oarlock_trainer.models.zimage import forward, tiny  # noqa: E402
from oarlock_trainer.models.zimage.family import Z_IMAGE  # noqa: E402
from oarlock_trainer.plan.counting import count, descriptions  # noqa: E402
from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments  # noqa: E402
from oarlock_trainer.plan.counting.calls import calls, make  # noqa: E402
from oarlock_trainer.plan.counting.kept import compiled, kept  # noqa: E402

PUBLISHED: dict[str, Any] = {
    "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 16, "dim": 3840, "n_layers": 30, "n_refiner_layers": 2,
    "n_heads": 30, "n_kv_heads": 30, "qk_norm": True, "cap_feat_dim": 2560,
}  # fmt: skip
SMALL = PUBLISHED | {
    "dim": 96, "n_heads": 6, "n_kv_heads": 6, "n_layers": 3, "n_refiner_layers": 1, "in_channels": 8, "cap_feat_dim": 40,
    "axes_dims": [4, 6, 6], "axes_lens": [64, 32, 32],
}  # fmt: skip
IMAGE, TEXT = 4096, 512


def install(model: Any) -> None:
    # Every kernel keeps the same, and this one's operator has shapes without a GPU.
    forward.install(model, attend=attend_with(Attention.FLASH2))


@pytest.mark.parametrize("config", [PUBLISHED, SMALL], ids=["published", "small"])
def test_every_linear_and_every_parameter_is_counted(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = imported(Z_IMAGE.transformer)(**config)
    shape = Z_IMAGE.architecture(config)
    assert whole(shape).trained == sum(one.numel() for one in model.parameters())
    assert whole(shape).largest == max(one.numel() for one in model.parameters())
    assert {one.name: (one.inputs, one.outputs, one.bias) for one in shape.linears} == {
        name: (one.in_features, one.out_features, one.bias is not None)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }


def test_the_published_model_is_what_is_counted_without_a_configuration() -> None:
    assert Z_IMAGE.architecture(PUBLISHED) == Z_IMAGE.published
    assert whole(Z_IMAGE.published).trained == 6_154_908_736


def test_the_encoders_make_what_their_configurations_say(tmp_path: Path) -> None:
    tiny.write(tmp_path)
    found = Z_IMAGE.read_encoded(tmp_path, next(iter(Z_IMAGE.flavors)))
    assert (found.channels, found.factor, found.tokens, found.width, found.pooled) == (4, 8, tiny.TEXT_TOKENS, 32, 0)
    assert whole(read_architecture(tmp_path, Z_IMAGE)).trained > 0
    with torch.device("meta"):
        from transformers import Qwen3Config, Qwen3Model  # noqa: PLC0415 - seconds

        published = Qwen3Model(
            Qwen3Config(
                vocab_size=151_936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36,
                num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
            )
        )  # fmt: skip
    assert Z_IMAGE.texts.parameters == sum(one.numel() for one in published.parameters())
    matrices = [one for one in published.layers[0].modules() if isinstance(one, torch.nn.Linear)]
    assert Z_IMAGE.texts.layer_parameters == sum(one.weight.numel() for one in matrices)


@pytest.mark.parametrize("other", [{"siglip_feat_dim": 1152}, {"all_patch_size": [2, 4]}, {"qk_norm": False}])
def test_a_variant_that_is_not_trained_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(other))):
        Z_IMAGE.architecture(PUBLISHED | other)


def test_flops_and_eager_activations_are_those_of_its_blocks() -> None:
    """Refiners see the image alone, or the text alone. What modulates whole samples is as much as one token, and left out."""
    counted = count.count(imported(Z_IMAGE.transformer), {}, descriptions.Z_IMAGE, prepare=install)
    shape, tokens = Z_IMAGE.published, IMAGE + TEXT
    matrices = sum(
        one.number * (one.forward.matrices[1] * IMAGE + one.forward.matrices[2] * TEXT) for one in counted.blocks
    )
    attention = sum(one.number * one.forward.at(image=IMAGE, text=TEXT) for one in counted.blocks) - matrices
    attention -= sum(one.number * one.forward.matrices[0] for one in counted.blocks)
    assert matrix_flops(shape, tokens=tokens, text_share=TEXT / tokens) == pytest.approx(matrices, rel=1e-9)
    assert attention_flops(shape, tokens=tokens, text_share=TEXT / tokens) == pytest.approx(attention, rel=1e-9)
    really = sum(one.number * one.kept.bytes(one.kept.eager, image=IMAGE, text=TEXT) for one in counted.blocks)
    one = width_bytes(tokens=tokens, samples=1, width=shape.width)
    planned = kept_bytes(shape.kinds, recomputed=0, token_bytes=one, compiled=False, text_share=TEXT / tokens)
    assert 0.99 * planned < really <= planned


@pytest.mark.parametrize("lean", [False, True])
def test_a_compiled_block_keeps_what_is_planned_for(*, lean: bool) -> None:
    config = {"n_layers": 2, "n_refiner_layers": 1}
    made = make(imported(Z_IMAGE.transformer), config, prepare=install)
    shapes = Shapes(rows=32, columns=32, text=256, batch=2)
    given = call_arguments(
        descriptions.Z_IMAGE, shapes, made.model.config, device=torch.device("meta"), dtype=torch.bfloat16
    )
    (kind,) = (one for one in made.kinds if one.name == "layers")
    call = calls(made, given)[kind]
    with compiled(made.kinds[kind], budget=BUDGET if lean else 1.0):
        found = kept(made.kinds[kind], call) / (2 * 3840 * 2 * (shapes.image + shapes.text))
    planned = widths(Z_IMAGE.published.kinds[2].kept, compiled=True, lean=lean)
    assert planned - 0.1 < found <= planned
