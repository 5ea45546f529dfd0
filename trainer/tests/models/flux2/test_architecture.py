"""FLUX.2 by its numbers: those of the classes themselves, and what is counted of them on torch's meta device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.flux2.family import FLUX2
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
from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel  # noqa: E402
from transformers import Qwen3Config, Qwen3Model  # noqa: E402

from oarlock_trainer.models.compute.compiled import BUDGET  # noqa: E402
from oarlock_trainer.models.flux2 import forward  # noqa: E402
from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments  # noqa: E402
from oarlock_trainer.plan.counting.calls import calls, make  # noqa: E402
from oarlock_trainer.plan.counting.flops import flops_of  # noqa: E402
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels  # noqa: E402
from oarlock_trainer.plan.counting.kept import compiled, kept  # noqa: E402

KLEIN_4B: dict[str, Any] = {
    "attention_head_dim": 128, "axes_dims_rope": [32, 32, 32, 32], "eps": 1e-6, "guidance_embeds": False,
    "in_channels": 128, "joint_attention_dim": 7680, "mlp_ratio": 3.0, "num_attention_heads": 24, "num_layers": 5,
    "num_single_layers": 20, "out_channels": None, "patch_size": 1, "rope_theta": 2000,
    "timestep_guidance_channels": 256,
}  # fmt: skip
KLEIN_9B = KLEIN_4B | {
    "joint_attention_dim": 12_288, "num_attention_heads": 32, "num_layers": 8, "num_single_layers": 24,
}  # fmt: skip
ODD = KLEIN_4B | {"num_layers": 1, "guidance_embeds": True, "out_channels": 16, "mlp_ratio": 2.5, "in_channels": 32}
SMALL = KLEIN_4B | {"num_attention_heads": 4, "num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 64}
SHAPES = Shapes(rows=64, columns=64, text=512, batch=2)
_BFLOAT16 = torch.bfloat16


@pytest.mark.parametrize("config", [KLEIN_4B, KLEIN_9B, ODD], ids=["4B", "9B", "odd"])
def test_every_linear_and_every_parameter_is_counted(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = Flux2Transformer2DModel(**config)
    shape = FLUX2.architecture(config)
    assert whole(shape).trained == sum(one.numel() for one in model.parameters())
    assert whole(shape).largest == max(one.numel() for one in model.parameters())
    assert {one.name: (one.inputs, one.outputs) for one in shape.linears} == {
        name: (one.in_features, one.out_features)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }


def test_the_published_models_are_what_is_counted_without_a_configuration() -> None:
    large = FLUX2.variants[ModelFlavor.KLEIN_9B]
    assert FLUX2.published == FLUX2.architecture(KLEIN_4B)
    assert large.published == FLUX2.architecture(KLEIN_9B)
    assert [whole(one.published).trained for one in (FLUX2, large)] == [3_875_544_576, 9_078_581_248]
    assert [one.published.text_width for one in (FLUX2, large)] == [one.encoded.width for one in (FLUX2, large)]


def test_the_configuration_of_a_model_on_disk_is_read(tiny_flux2: Path) -> None:
    model = Flux2Transformer2DModel.from_pretrained(tiny_flux2 / "transformer")
    assert whole(read_architecture(tiny_flux2, FLUX2)).trained == sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize(("width", "hidden", "texts"), [(2560, 9728, FLUX2.texts), (4096, 12_288, None)])
def test_a_text_encoder_has_the_parameters_of_its_class_up_to_the_layer_that_is_asked(
    width: int, hidden: int, texts: Any
) -> None:
    texts = texts or FLUX2.variants[ModelFlavor.KLEIN_9B].texts
    with torch.device("meta"):
        network = Qwen3Model(
            Qwen3Config(
                vocab_size=151_936, hidden_size=width, intermediate_size=hidden, num_hidden_layers=27,
                num_attention_heads=32, num_key_value_heads=8, head_dim=128,
            )
        )  # fmt: skip
    network.norm = torch.nn.Identity()
    matrices = [one.numel() for one in network.layers[0].parameters() if one.ndim == 2]
    assert texts.parameters == sum(one.numel() for one in network.parameters())
    assert texts.layer_parameters == sum(matrices)
    assert (texts.layers, texts.largest) == (27, network.embed_tokens.weight.numel())


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """As the job's, by the function that the counting replaces."""
    assert mask is None
    heads = (one.transpose(1, 2) for one in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


@pytest.fixture(scope="module")
def counted() -> tuple[Any, Any]:
    """One block of each kind with our attention, and what the model calls it with."""
    made = make(Flux2Transformer2DModel, SMALL, prepare=lambda model: forward.install(model, attend=attend))
    given = call_arguments(descriptions.FLUX2, SHAPES, made.model.config, device=torch.device("meta"), dtype=_BFLOAT16)
    with gpu_kernels():
        return made, calls(made, given)


def test_flops_of_a_block_are_those_that_are_counted(counted: tuple[Any, Any]) -> None:
    made, called = counted
    shape, tokens = FLUX2.architecture(SMALL), SHAPES.image + SHAPES.text
    with gpu_kernels():
        passes = [flops_of(block, called[kind]).forward for kind, block in made.kinds.items()]
    assert sum(one.matrices for one in passes) == SHAPES.batch * matrix_flops(shape, tokens=tokens)
    assert sum(one.attention for one in passes) == SHAPES.batch * attention_flops(shape, tokens=tokens)


def test_a_block_keeps_what_is_planned_for_its_kind(counted: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")  # else what is compiled is left as it is
    made, called = counted
    shape = FLUX2.architecture(SMALL)
    one = 2 * shape.width * SHAPES.batch * (SHAPES.image + SHAPES.text)
    for (kind, block), planned in zip(made.kinds.items(), shape.kinds, strict=True):
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
        vae, pictures = AutoencoderKLFlux2().to(_BFLOAT16), torch.empty(2, 3, 256, 256, dtype=_BFLOAT16)
    with torch.no_grad(), Alive() as alive:
        vae.encode(pictures)
    weights = sum(weight.nbytes for weight in vae.parameters())
    assert weights + alive.most == vae_bytes(FLUX2.vae, pictures=2, pixels=256 * 256)
