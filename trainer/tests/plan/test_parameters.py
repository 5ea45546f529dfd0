"""Parameters are counted from the configuration exactly as diffusers makes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import AdapterAlgorithm, Lokr, LokrFactor, Lora
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.parameters import adapters, read_architecture, whole
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel  # noqa: E402

FLUX1_DEV: dict[str, Any] = {
    "attention_head_dim": 128,
    "axes_dims_rope": [16, 56, 56],
    "guidance_embeds": True,
    "in_channels": 64,
    "joint_attention_dim": 4096,
    "num_attention_heads": 24,
    "num_layers": 19,
    "num_single_layers": 38,
    "out_channels": None,
    "patch_size": 1,
    "pooled_projection_dim": 768,
}
FLUX1_SCHNELL = FLUX1_DEV | {"guidance_embeds": False}
ODD = FLUX1_DEV | {"num_layers": 1, "num_single_layers": 3, "out_channels": 16, "patch_size": 2, "in_channels": 32}


@pytest.mark.parametrize("config", [FLUX1_DEV, FLUX1_SCHNELL, ODD], ids=["dev", "schnell", "odd"])
def test_every_linear_and_every_parameter_is_counted(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = FluxTransformer2DModel(**config)
    shape = FLUX1.architecture(config)
    assert whole(shape).trained == sum(one.numel() for one in model.parameters())
    assert whole(shape).largest == max(one.numel() for one in model.parameters())
    assert {one.name: (one.inputs, one.outputs) for one in shape.linears} == {
        name: (one.in_features, one.out_features)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
    }


def test_flux1_dev_is_what_is_counted_without_a_configuration() -> None:
    assert FLUX1.architecture(FLUX1_DEV) == FLUX1.published
    assert whole(FLUX1.published).trained == 11_901_408_320
    assert len(FLUX1.published.linears) == 504


def test_the_configuration_of_a_model_on_disk_is_read(tiny_flux: Path) -> None:
    model = FluxTransformer2DModel.from_pretrained(tiny_flux / "transformer")
    assert whole(read_architecture(tiny_flux, FLUX1)).trained == sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize(("rank", "millions"), [(16, 65.4), (64, 261.7)])
def test_adapters_grow_with_their_rank(rank: int, millions: float) -> None:
    found = adapters(FLUX1.published, Lora(rank=rank), FLUX1.presets)
    assert found.trained / 1e6 == pytest.approx(millions, abs=0.05)
    assert found.frozen == 11_901_408_320


def test_adapters_stand_where_names_and_presets_say() -> None:
    width = FLUX1.published.width
    assert adapters(FLUX1.published, Lora(rank=4, targets=("attn.to_q",)), FLUX1.presets).trained == 57 * 4 * 2 * width
    assert adapters(FLUX1.published, Lora(rank=4, targets=("nano",)), FLUX1.presets).trained == 4 * 6 * width
    with pytest.raises(ConfigurationError, match='"o_q" is the end of no linear layer'):
        adapters(FLUX1.published, Lora(rank=4, targets=("o_q",)), FLUX1.presets)


@pytest.mark.parametrize(
    ("lokr", "of_a_layer"),
    [
        (Lokr(), 16**2 + 2 * 16 * 192),
        (Lokr(decompose_both=True, factor=48), 2 * 16 * 48 + 2 * 16 * 64),
        (Lokr(full_matrix=True), 16**2 + 192**2),
        (Lokr(full_matrix=True, factors=(LokrFactor(targets=("to_q",), factor=8),)), 8**2 + 384**2),
    ],
)
def test_kronecker_adapters_shrink_with_their_factor(lokr: Lokr, of_a_layer: int) -> None:
    found = adapters(
        FLUX1.published, Lora(algorithm=AdapterAlgorithm.LOKR, lokr=lokr, targets=("attn.to_q",)), FLUX1.presets
    )
    assert found.trained == 57 * of_a_layer
    assert found.frozen == 11_901_408_320


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"num_layers": 2})])
def test_a_configuration_that_says_too_little_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"transformer/config\.json cannot be read"):
        read_architecture(tmp_path, FLUX1)
