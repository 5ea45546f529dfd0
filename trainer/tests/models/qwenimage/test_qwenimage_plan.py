"""What a plan takes for granted of Qwen-Image is what its classes have, compute and keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.plan.activations import widths
from oarlock_trainer.plan.counting import descriptions
from oarlock_trainer.plan.encoding import vae_bytes
from oarlock_trainer.plan.flops import attention_flops, matrix_flops
from oarlock_trainer.plan.parameters import read_architecture, whole
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from alive import Alive  # noqa: E402
from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel  # noqa: E402
from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel  # noqa: E402

from oarlock_trainer.models.compute.compiled import BUDGET  # noqa: E402
from oarlock_trainer.models.qwenimage import forward  # noqa: E402
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE  # noqa: E402
from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments  # noqa: E402
from oarlock_trainer.plan.counting.calls import calls, make  # noqa: E402
from oarlock_trainer.plan.counting.flops import flops_of  # noqa: E402
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels  # noqa: E402
from oarlock_trainer.plan.counting.kept import compiled, kept  # noqa: E402

PUBLISHED: dict[str, Any] = {
    "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": False, "in_channels": 64,
    "joint_attention_dim": 3584, "num_attention_heads": 24, "num_layers": 60, "out_channels": 16, "patch_size": 2,
}  # fmt: skip
SMALL = PUBLISHED | {
    "num_attention_heads": 4,
    "num_layers": 2,
    "joint_attention_dim": 64,
    "in_channels": 32,
    "out_channels": 8,
}
SHAPES = Shapes(rows=64, columns=64, text=512, batch=2)
_BFLOAT16 = torch.bfloat16


@pytest.mark.parametrize("config", [PUBLISHED, SMALL], ids=["published", "small"])
def test_every_linear_and_every_parameter_is_counted(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = QwenImageTransformer2DModel(**config)
    shape = QWEN_IMAGE.architecture(config)
    assert whole(shape).trained == sum(one.numel() for one in model.parameters())
    assert whole(shape).largest == max(one.numel() for one in model.parameters())
    assert {one.name: (one.inputs, one.outputs, one.bias) for one in shape.linears} == {
        name: (one.in_features, one.out_features, one.bias is not None)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }


def test_the_published_model_is_what_is_counted_without_a_configuration() -> None:
    assert QWEN_IMAGE.published == QWEN_IMAGE.architecture(PUBLISHED)
    assert whole(QWEN_IMAGE.published).trained == 20_430_401_088
    assert QWEN_IMAGE.published.text_width == QWEN_IMAGE.encoded.width


def test_the_configuration_of_a_model_on_disk_is_read(tiny_qwen_image: Path) -> None:
    model = QwenImageTransformer2DModel.from_pretrained(tiny_qwen_image / "transformer")
    assert whole(read_architecture(tiny_qwen_image, QWEN_IMAGE)).trained == sum(
        one.numel() for one in model.parameters()
    )


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"guidance_embeds": True}, "guidance_embeds"),
        ({"zero_cond_t": True}, "zero_cond_t"),
        ({"causal_condition": True}, "causal_condition"),
        ({"use_layer3d_rope": True, "use_additional_t_cond": True}, "use_additional_t_cond, use_layer3d_rope"),
        ({"in_channels": 128}, "in_channels"),
    ],
)
def test_a_variant_that_is_not_trained_is_refused(other: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        QWEN_IMAGE.architecture(PUBLISHED | other)


def test_the_text_encoder_has_the_parameters_of_its_class() -> None:
    texts = QWEN_IMAGE.texts
    with torch.device("meta"):
        network = Qwen2_5_VLTextModel(
            Qwen2_5_VLTextConfig(
                vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28,
                num_attention_heads=28, num_key_value_heads=4,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
            )
        )  # fmt: skip
    matrices = [one.numel() for one in network.layers[0].parameters() if one.ndim == 2]
    assert texts.parameters == sum(one.numel() for one in network.parameters())
    assert texts.layer_parameters == sum(matrices)
    assert (texts.layers, texts.largest) == (28, network.embed_tokens.weight.numel())


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """As the job's, by the function that the counting replaces."""
    assert mask is None
    heads = (one.transpose(1, 2) for one in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


@pytest.fixture(scope="module")
def counted() -> tuple[Any, Any]:
    """One block with our attention, and what the model calls it with."""
    made = make(QwenImageTransformer2DModel, SMALL, prepare=lambda model: forward.install(model, attend=attend))
    given = call_arguments(
        descriptions.QWEN_IMAGE, SHAPES, made.model.config, device=torch.device("meta"), dtype=_BFLOAT16
    )
    with gpu_kernels():
        return made, calls(made, given)


def test_flops_of_a_block_are_those_that_are_counted(counted: tuple[Any, Any]) -> None:
    """What modulates whole samples is as much as two tokens, and left out."""
    made, called = counted
    shape, tokens = QWEN_IMAGE.architecture(SMALL), SHAPES.image + SHAPES.text
    with gpu_kernels():
        (one,) = (flops_of(block, called[kind]).forward for kind, block in made.kinds.items())
    (kind,) = shape.kinds
    modulation = 2 * SHAPES.batch * kind.modulation
    assert kind.number * (one.matrices - modulation) == SHAPES.batch * matrix_flops(shape, tokens=tokens)
    assert kind.number * one.attention == SHAPES.batch * attention_flops(shape, tokens=tokens)


def test_a_block_keeps_what_is_planned_for(counted: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")  # else what is compiled is left as it is
    made, called = counted
    shape = QWEN_IMAGE.architecture(SMALL)
    ((kind, block),), (planned,) = made.kinds.items(), shape.kinds
    one = 2 * shape.width * SHAPES.batch * (SHAPES.image + SHAPES.text)
    with gpu_kernels():
        eager = kept(block, called[kind]) / one
    assert planned.kept.eager - 0.1 < eager <= planned.kept.eager
    for lean in (False, True):
        with gpu_kernels(norms=False), compiled(block, budget=BUDGET if lean else 1.0):
            found = kept(block, called[kind]) / one
        wanted = widths(planned.kept, compiled=True, lean=lean)
        assert wanted - 0.1 < found <= wanted


def test_the_vae_at_work_has_as_much_alive_as_is_planned_for() -> None:
    with torch.device("meta"):
        vae = AutoencoderKLQwenImage().to(_BFLOAT16)
        pictures = torch.empty(2, 3, 1, 256, 256, dtype=_BFLOAT16)
    with torch.no_grad(), Alive() as alive:
        vae.encode(pictures)
    weights = sum(weight.nbytes for weight in vae.parameters())
    planned = vae_bytes(QWEN_IMAGE.vae, pictures=2, pixels=256 * 256)
    assert 0.999 * planned < weights + alive.most <= planned
