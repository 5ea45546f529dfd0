"""What a plan takes for granted of Wan is what its classes have, compute and keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Model, ModelFamily, ModelFlavor
from oarlock_trainer.models.families import family_of
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
from diffusers import AutoencoderKLWan, WanTransformer3DModel  # noqa: E402
from transformers import UMT5Config, UMT5EncoderModel  # noqa: E402

from oarlock_trainer.models.compute.compiled import BUDGET  # noqa: E402
from oarlock_trainer.models.wan import forward  # noqa: E402
from oarlock_trainer.models.wan.family import WAN  # noqa: E402
from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments  # noqa: E402
from oarlock_trainer.plan.counting.calls import calls, make  # noqa: E402
from oarlock_trainer.plan.counting.flops import flops_of  # noqa: E402
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels  # noqa: E402
from oarlock_trainer.plan.counting.kept import compiled, kept  # noqa: E402

PUBLISHED: dict[str, Any] = {
    "added_kv_proj_dim": None, "attention_head_dim": 128, "cross_attn_norm": True, "eps": 1e-6, "ffn_dim": 8960,
    "freq_dim": 256, "image_dim": None, "in_channels": 16, "num_attention_heads": 12, "num_layers": 30, "out_channels": 16,
    "patch_size": [1, 2, 2], "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024, "text_dim": 4096,
}  # fmt: skip
LARGE = PUBLISHED | {"ffn_dim": 13_824, "num_attention_heads": 40, "num_layers": 40}
SMALL = PUBLISHED | {"ffn_dim": 2240, "num_attention_heads": 3, "num_layers": 2, "text_dim": 64}
SMALL_14B = SMALL | {"ffn_dim": 1728, "num_attention_heads": 5}
"""Their feed-forward parts are as wide, beside their width, as those of 1.3B and of 14B."""
SHAPES = Shapes(rows=30, columns=52, text=512, batch=2, frames=5)
"""17 frames of 832 x 480 pixels."""
_BFLOAT16 = torch.bfloat16


def published(flavor: ModelFlavor) -> Any:
    return family_of(Model(family=ModelFamily.WAN, flavor=flavor, path="/model")).published


@pytest.mark.parametrize("config", [PUBLISHED, LARGE, SMALL], ids=["1.3B", "14B", "small"])
def test_every_linear_and_every_parameter_is_counted(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = WanTransformer3DModel(**config)
    shape = WAN.architecture(config)
    assert whole(shape).trained == sum(one.numel() for one in model.parameters())
    assert whole(shape).largest == max(one.numel() for one in model.parameters())
    assert {one.name: (one.inputs, one.outputs, one.bias) for one in shape.linears} == {
        name: (one.in_features, one.out_features, one.bias is not None)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }


def test_the_published_models_are_what_is_counted_without_a_configuration() -> None:
    small, large = published(ModelFlavor.T2V1_3B), published(ModelFlavor.T2V14B)
    assert (small, large) == (WAN.architecture(PUBLISHED), WAN.architecture(LARGE))
    assert [whole(one).trained for one in (small, large)] == [1_418_996_800, 14_288_491_584]
    assert small.text_width == large.text_width == WAN.encoded.width


def test_the_configuration_of_a_model_on_disk_is_read(tiny_wan: Path) -> None:
    model = WanTransformer3DModel.from_pretrained(tiny_wan / "transformer")
    assert whole(read_architecture(tiny_wan, WAN)).trained == sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"image_dim": 1280, "added_kv_proj_dim": 5120}, "image_dim, added_kv_proj_dim: .* is given a first frame"),
        ({"in_channels": 36}, "in_channels"),
        ({"patch_size": [2, 2, 2]}, "patch_size"),
        ({"cross_attn_norm": False}, "cross_attn_norm"),
    ],
)
def test_a_variant_that_is_not_trained_is_refused(other: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        WAN.architecture(PUBLISHED | other)


def test_the_text_encoder_has_the_parameters_of_its_class() -> None:
    texts = WAN.texts
    with torch.device("meta"):
        network = UMT5EncoderModel(
            UMT5Config(vocab_size=256_384, d_model=4096, d_kv=64, d_ff=10_240, num_layers=24, num_heads=64)
        )
    assert texts.parameters == sum(one.numel() for one in network.parameters())
    layer = [one for one in network.encoder.block[0].modules() if isinstance(one, torch.nn.Linear)]
    assert texts.layer_parameters == sum(one.weight.numel() for one in layer)
    assert (texts.layers, texts.largest) == (24, network.shared.weight.numel())


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """As the job's, by the function that the counting replaces."""
    assert mask is None
    heads = (one.transpose(1, 2) for one in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


@pytest.fixture(scope="module", params=[SMALL, SMALL_14B], ids=["1.3B", "14B"])
def counted(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """An architecture, one block of it with our attention, and what the model calls that with."""
    made = make(WanTransformer3DModel, request.param, prepare=lambda model: forward.install(model, attend=attend))
    given = call_arguments(descriptions.WAN, SHAPES, made.model.config, device=torch.device("meta"), dtype=_BFLOAT16)
    with gpu_kernels():
        return WAN.architecture(request.param), made, calls(made, given)


def test_flops_of_a_block_are_those_that_are_counted(counted: tuple[Any, Any, Any]) -> None:
    """Of attention among the image's tokens and of that to the text's, too."""
    (shape, made, called), tokens = counted, SHAPES.image + SHAPES.text
    with gpu_kernels():
        (one,) = (flops_of(block, called[kind]).forward for kind, block in made.kinds.items())
    (kind,) = shape.kinds
    share = SHAPES.text / tokens
    assert kind.number * one.matrices == pytest.approx(
        SHAPES.batch * matrix_flops(shape, tokens=tokens, text_share=share), rel=1e-9
    )
    assert kind.number * one.attention == pytest.approx(
        SHAPES.batch * attention_flops(shape, tokens=tokens, text_share=share), rel=1e-9
    )


def test_a_block_keeps_what_is_planned_for_and_of_the_text_less(
    counted: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan takes for the text's tokens what the image's keep: 512 of 8312 here, and fewer beside a longer video."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")  # else what is compiled is left as it is
    shape, made, called = counted
    ((kind, block),), (planned,) = made.kinds.items(), shape.kinds
    one = 2 * shape.width * SHAPES.batch * (SHAPES.image + SHAPES.text)
    with gpu_kernels():
        eager = kept(block, called[kind]) / one
    assert 0.94 * planned.kept.eager < eager <= planned.kept.eager
    for lean in (False, True):
        with gpu_kernels(norms=False), compiled(block, budget=BUDGET if lean else 1.0):
            found = kept(block, called[kind]) / one
        wanted = widths(planned.kept, compiled=True, lean=lean)
        assert 0.94 * wanted < found <= wanted


def test_the_vae_at_work_on_pictures_has_as_much_alive_as_is_planned_for() -> None:
    with torch.device("meta"):
        vae = AutoencoderKLWan().to(_BFLOAT16)
        pictures = torch.empty(2, 3, 1, 256, 256, dtype=_BFLOAT16)
    with torch.no_grad(), Alive() as alive:
        vae.encode(pictures)
    weights = sum(weight.nbytes for weight in vae.parameters())
    planned = vae_bytes(WAN.vae, pictures=2, pixels=256 * 256)
    assert 0.999 * planned < weights + alive.most <= planned


@pytest.mark.parametrize("frames", [5, 17, 81])
def test_of_a_video_the_vae_has_no_more_alive_than_is_planned_for_and_little_less(frames: int) -> None:
    """It takes four frames at a time, and keeps what the next ones need: of five frames there are no such."""
    with torch.device("meta"):
        vae = AutoencoderKLWan().to(_BFLOAT16)
        video = torch.empty(1, 3, frames, 256, 256, dtype=_BFLOAT16)
    with torch.no_grad(), Alive() as alive:
        vae.encode(video)
    planned = vae_bytes(WAN.vae, pictures=1, pixels=256 * 256, frames=frames)
    found = sum(weight.nbytes for weight in vae.parameters()) + alive.most
    assert (0.85 if frames == 5 else 0.95) * planned < found <= planned
