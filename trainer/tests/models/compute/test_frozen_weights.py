"""Frozen weights in fewer bits: how near they are, what they take, and that gradients pass through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_api.weights import Lora, QuantizeBase
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from torch import nn  # noqa: E402

from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lora  # noqa: E402
from oarlock_trainer.models.compute.frozen_weights import FrozenLinear, pack, quantize, unpack  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402

KINDS = [QuantizeBase.INT8, QuantizeBase.FP8, QuantizeBase.NF4]
CPU = torch.device("cpu")


def weight(rows: int = 96, columns: int = 128) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)


@pytest.mark.parametrize(
    ("kind", "largest", "bits"),
    [(QuantizeBase.INT8, 0.5 / 127, 8.25), (QuantizeBase.FP8, 2**-4, 8.25), (QuantizeBase.NF4, 0.152, 4.5)],
)
def test_a_weight_is_as_near_as_its_format_allows_and_takes_its_bits(
    kind: QuantizeBase, largest: float, bits: float
) -> None:
    """Of a row's maximum: half a step of 127, half a unit of e4m3's last place, half of the widest gap in NF4's table."""
    whole = weight()
    packed = pack(whole, kind)
    apart = (unpack(packed, torch.float32) - whole.float()).abs()
    assert bool((apart <= largest * whole.float().abs().amax(dim=1, keepdim=True) * 1.01).all())
    assert apart.max() > 0
    assert sum(one.nbytes for one in (packed.codes, packed.scales)) * 8 / whole.numel() == bits


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_quantized_once_is_the_same_when_it_is_quantized_again(kind: QuantizeBase) -> None:
    once = unpack(pack(weight().float(), kind), torch.float32)
    torch.testing.assert_close(unpack(pack(once, kind), torch.float32), once, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_zeros_stays_one(kind: QuantizeBase) -> None:
    assert torch.equal(unpack(pack(torch.zeros(64, 64), kind), torch.float32), torch.zeros(64, 64))


@pytest.mark.parametrize("kind", KINDS)
def test_products_and_gradients_are_those_of_the_weight_that_it_stands_for(kind: QuantizeBase) -> None:
    layer = nn.Linear(128, 96, dtype=torch.bfloat16)
    frozen = FrozenLinear(layer, kind)
    layer.weight.data = unpack(pack(layer.weight.detach(), kind), torch.bfloat16)
    outputs, gradients = [], []
    for one in (layer, frozen):
        values = torch.ones(2, 5, 128, dtype=torch.bfloat16).cumsum(-1).div(128).requires_grad_()
        outputs.append(one(values))
        outputs[-1].float().square().sum().backward()
        gradients.append(values.grad)
    assert torch.equal(*outputs)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", KINDS)
def test_all_layers_of_the_blocks_are_quantized_and_the_adapters_are_not(tiny_flux: Path, kind: QuantizeBase) -> None:
    model = transformer.load(tiny_flux)
    lora.add_adapters(model, Lora(rank=4), FLUX1.presets, seed=1)
    adapters = {name: value.clone() for name, value in model.named_parameters() if value.requires_grad}
    quantize(FLUX1.blocks_of(model), kind, device=CPU)
    left = [
        name for name, module in model.named_modules() if type(module) is nn.Linear and "transformer_blocks" in name
    ]
    assert left == []
    assert sum(isinstance(module, FrozenLinear) for module in model.modules()) == 2 * 14 + 4 * 6
    kept = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert kept.keys() == adapters.keys()
    assert all(torch.equal(kept[name], adapters[name]) for name in kept)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_makes_the_same_weight_of_it_and_its_products_have_gradients(kind: QuantizeBase) -> None:
    here = unpack(pack(weight(), kind), torch.bfloat16)
    there = unpack(pack(weight().cuda(), kind), torch.bfloat16)
    torch.testing.assert_close(there.cpu(), here)
    frozen = FrozenLinear(nn.Linear(128, 96, dtype=torch.bfloat16).cuda(), kind)
    values = torch.ones(2, 5, 128, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    frozen(values).float().sum().backward()
    assert values.grad is not None
    assert bool(values.grad.isfinite().all())
