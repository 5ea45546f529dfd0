"""Float8 products: near bfloat16's, in the layers that gain by it, under the same names."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.weights import Lora
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import batch, distance, pair, passes  # noqa: E402
from torch.nn.functional import cosine_similarity  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute import fp8  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402

FLOAT8 = 0.1
"""Relative distance of a prediction from float32's: e4m3 has three bits of mantissa."""
ALIKE = 0.97
"""Cosine between gradients."""
LOSS = 0.05
"""Relative distance of the losses of any step."""


def float8_model() -> tuple[Any, Any]:
    theirs, mine = pair()
    fp8.use_float8(FLUX1.blocks_of(mine))
    forward.install(mine, attend=attend_with(Attention.SDPA))
    return theirs, mine


def converted(model: Any) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, fp8.Float8Linear)}


def test_a_prediction_and_its_gradients_are_near_those_without_float8() -> None:
    """With 33 tokens: no multiple of the 16 that the hardware asks for."""
    theirs, mine = float8_model()
    given = batch(size=1, height=8, width=12, text=9)
    wanted, wanted_gradients = passes(theirs, given)
    found, gradients = passes(mine, given)
    assert 1e-4 < distance(found, wanted) < FLOAT8
    for name, gradient in gradients.items():
        assert float(cosine_similarity(gradient.flatten(), wanted_gradients[name].flatten(), dim=0)) > ALIKE, name


def test_modulations_embedders_and_odd_sizes_stay_as_they_are() -> None:
    _, mine = pair(double=1, single=1)
    mine.single_transformer_blocks[0].proj_mlp = torch.nn.Linear(64, 250)
    fp8.use_float8(FLUX1.blocks_of(mine))
    assert converted(mine) == {
        *(f"transformer_blocks.0.attn.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0", "to_add_out")),
        *(f"transformer_blocks.0.attn.add_{name}_proj" for name in "qkv"),
        *(f"transformer_blocks.0.{name}.net.{part}" for name in ("ff", "ff_context") for part in ("0.proj", "2")),
        *(f"single_transformer_blocks.0.{name}" for name in ("attn.to_q", "attn.to_k", "attn.to_v", "proj_out")),
    }


def test_names_of_weights_stay_those_of_diffusers() -> None:
    theirs, mine = float8_model()
    assert list(mine.state_dict()) == list(theirs.state_dict())


def test_the_frozen_weights_under_adapters_take_float8_and_the_adapters_do_not() -> None:
    _, mine = pair()
    lora.add_adapters(mine, Lora(rank=16, alpha=16), FLUX1.presets, seed=1)
    fp8.use_float8(FLUX1.blocks_of(mine))
    forward.install(mine, attend=attend_with(Attention.SDPA))
    assert "transformer_blocks.0.attn.to_q.base_layer" in converted(mine)
    assert not any("lora_" in name for name in converted(mine))
    _, gradients = passes(mine, batch())
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize("of", ["values", "weight"])
def test_only_the_gradients_that_are_wanted_are_computed(of: str) -> None:
    layer = torch.nn.Linear(32, 16)
    layer.__class__ = fp8.Float8Linear
    values = torch.randn(3, 5, 32, requires_grad=of == "values")
    layer.weight.requires_grad_(requires_grad=of == "weight")
    layer(values).sum().backward()
    assert (values.grad is not None, layer.weight.grad is not None) == (of == "values", of == "weight")


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_values_of_any_size_stay_finite(scale: float) -> None:
    layer = torch.nn.Linear(32, 16, bias=False)
    layer.__class__ = fp8.Float8Linear
    values = torch.randn(8, 32) * scale
    assert torch.isfinite(layer(values)).all()


def test_a_device_without_float8_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"training\.precision: FP8 needs a GPU.*has a CPU.*BF16"):
        fp8.require_float8(torch.device("cpu"))


def losses(device: str, *, steps: int, float8: bool) -> list[float]:
    """Of a model in bfloat16 that learns one batch."""
    _, model = pair(double=2, single=4)
    model = torch.nn.Module.to(model, device, torch.bfloat16)
    if float8:
        fp8.use_float8(FLUX1.blocks_of(model))
    forward.install(model, attend=attend_with(Attention.SDPA))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = {
        name: value.to(device, torch.float32 if name.endswith("_ids") else torch.bfloat16)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in batch(size=4, height=16, width=16, text=64).items()
    }
    torch.manual_seed(3)
    target = torch.randn(4, 64, 16).to(device)
    found = []
    for _ in range(steps):
        loss = (model(**given)[0].float() - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found


@pytest.mark.deep
def test_losses_are_those_of_bfloat16() -> None:
    exact, found = (losses("cpu", steps=20, float8=float8) for float8 in (False, True))
    assert exact[-1] < 0.9 * exact[0]
    assert found == pytest.approx(exact, rel=LOSS)


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="no CUDA GPU with float8"
)
def test_two_hundred_steps_on_a_gpu_have_the_losses_of_bfloat16() -> None:
    exact, found = (losses("cuda", steps=200, float8=float8) for float8 in (False, True))
    assert exact[-1] < 0.9 * exact[0]
    assert found == pytest.approx(exact, rel=LOSS)
