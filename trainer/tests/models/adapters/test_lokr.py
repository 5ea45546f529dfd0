"""LoKr: what it computes, beside LyCORIS' own library, and that its files are LyCORIS'."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import AdapterAlgorithm, Lokr, LokrFactor, Lora, QuantizeBase
from oarlock_trainer.models.adapters.lokr_shapes import factor_shapes, factorized
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from lycoris import LycorisNetwork, create_lycoris, create_lycoris_from_weights  # noqa: E402
from lycoris.functional.general import factorization  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lokr, lora  # noqa: E402
from oarlock_trainer.models.compute.frozen_weights import quantize  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, predict  # noqa: E402


def lokr_of(rank: int = 16, alpha: float = 16, targets: tuple[str, ...] = (), **fields: Any) -> Lora:
    return Lora(
        algorithm=AdapterAlgorithm.LOKR, rank=rank, alpha=alpha, targets=targets, lokr=Lokr.model_validate(fields)
    )


EVERYWHERE = ("all+ffs+embedder",)
KINDS = {
    "products": lokr_of(rank=2, alpha=6, factor=4, targets=EVERYWHERE),
    "whole": lokr_of(factor=4, full_matrix=True, targets=EVERYWHERE),
    "both products": lokr_of(rank=2, alpha=1, factor=8, decompose_both=True, targets=EVERYWHERE),
    "near the root": lokr_of(rank=3, alpha=3, factor=-1),
    "mixed": lokr_of(full_matrix=True, factors=(LokrFactor(targets=("ff.net.2", "to_q"), factor=2),)),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def settings(request: pytest.FixtureRequest) -> Lora:
    found: Lora = request.param
    return found


def adapted(tiny_flux: Path, settings: Lora, *, seed: int = 1) -> Any:
    """A model in float32, so that arithmetic is compared and not rounding."""
    model = transformer.load(tiny_flux).float()
    lora.add_adapters(model, settings, FLUX1.presets, seed=seed)
    return model


def trained(model: Any) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def move(model: Any) -> None:
    """Something that training might have made of the adapters."""
    with torch.no_grad():
        for number, value in enumerate(trained(model).values()):
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(number)), alpha=0.1)


def prediction(model: Any) -> torch.Tensor:
    source = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source)

    batch = MicroBatch(
        latents=draw(2, 4, 8, 6),
        noise=draw(2, 4, 8, 6),
        text=draw(2, 5, 32),
        pooled=draw(2, 32),
        sigmas=torch.tensor([0.3, 0.8]),
        guidance=torch.ones(2),
        text_mask=None,
    )
    with torch.no_grad():
        return predict(model, batch, velocity=velocity, has_guidance=True).float()


@pytest.mark.parametrize("factor", [-1, 2, 3, 4, 8, 16, 64, 1024])
def test_sizes_are_taken_apart_as_lycoris_does(factor: int) -> None:
    sizes = [*range(1, 300), 3072, 9216, 12288, 15360, 18432]
    assert [factorized(size, factor) for size in sizes] == [factorization(size, factor) for size in sizes]


@pytest.mark.parametrize(
    ("rank", "whole", "both", "factor"),
    list(product([1, 3, 8, 200], [False, True], [False, True], [-1, 4, 16])),
)
def test_factors_have_the_shapes_that_lycoris_gives_them(rank: int, *, whole: bool, both: bool, factor: int) -> None:
    fields = {"full_matrix": whole, "decompose_both": both and not whole, "factor": factor}
    settings = lokr_of(16 if whole else rank, **fields)
    for inputs, outputs in ((3072, 3072), (12288, 3072), (64, 3072), (3072, 64), (96, 35)):
        layer = torch.nn.Linear(inputs, outputs, device="meta")
        theirs = _lycoris_layer(layer, settings.rank, **fields)
        ours = factor_shapes("layer", outputs=outputs, inputs=inputs, settings=settings, presets=FLUX1.presets)
        assert ours == {name: tuple(value.shape) for name, value in theirs.named_parameters()}


def _lycoris_layer(layer: torch.nn.Linear, rank: int, **fields: Any) -> Any:
    from lycoris.modules.lokr import LokrModule  # noqa: PLC0415

    return LokrModule("layer", layer, lora_dim=rank, alpha=1, **fields)


@pytest.mark.parametrize("shape", [(3,), (2, 5), ()])
def test_the_product_and_its_gradients_are_those_of_the_update_written_out(shape: tuple[int, ...]) -> None:
    source = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=source, dtype=torch.float64).requires_grad_()

    values, first, second = draw(*shape, 4 * 6), draw(3, 4), draw(5, 6)
    upstream = torch.randn((*shape, 3 * 5), generator=source, dtype=torch.float64)

    def gradients(result: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(result, (values, first, second), upstream)

    ours = lokr._Product.apply(values, first, second)
    dense = torch.nn.functional.linear(values, torch.kron(first, second))
    torch.testing.assert_close(ours, dense)
    for mine, theirs in zip(gradients(ours), gradients(dense), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kind", ["both products", "whole"])
def test_a_new_adapter_changes_no_prediction_and_a_moved_one_does(tiny_flux: Path, kind: str) -> None:
    plain, model = transformer.load(tiny_flux).float(), adapted(tiny_flux, KINDS[kind])
    assert torch.equal(prediction(model), prediction(plain))
    move(model)
    assert not torch.equal(prediction(model), prediction(plain))
    with lora.without_adapters(model):
        assert torch.equal(prediction(model), prediction(plain))
    assert not torch.equal(prediction(model), prediction(plain))


def test_what_is_saved_is_loaded_by_lycoris_and_predicts_the_same_there(
    tiny_flux: Path, tmp_path: Path, settings: Lora
) -> None:
    model = adapted(tiny_flux, settings)
    move(model)
    lora.save(trained(model), settings, tmp_path)
    theirs = transformer.load(tiny_flux).float()
    base = prediction(theirs)
    network, _ = create_lycoris_from_weights(1.0, str(tmp_path / lora.FILE), theirs)
    assert len(network.loras) == len(list(lokr.layers(model)))
    network.apply_to()
    torch.testing.assert_close(prediction(theirs), prediction(model), rtol=1e-4, atol=1e-4)
    network.restore()
    assert torch.equal(prediction(theirs), base)
    network.merge_to()
    torch.testing.assert_close(prediction(theirs), prediction(model), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(prediction(theirs), base, atol=1e-3)


def test_what_is_saved_is_as_strong_in_comfyui(tiny_flux: Path, tmp_path: Path, settings: Lora) -> None:
    model = adapted(tiny_flux, settings)
    move(model)
    lora.save(trained(model), settings, tmp_path)
    content = load_file(tmp_path / lora.FILE)
    for name, layer in model.named_modules():
        if isinstance(layer, lokr.KroneckerLinear):
            first, second = _whole(layer, "lokr_w1"), _whole(layer, "lokr_w2")
            theirs = in_comfyui(content, f"lycoris_{name.replace('.', '_')}")
            torch.testing.assert_close(theirs, layer.scale * torch.kron(first, second))


def _whole(layer: Any, name: str) -> torch.Tensor:
    whole: torch.Tensor | None = getattr(layer, name)
    return getattr(layer, f"{name}_a") @ getattr(layer, f"{name}_b") if whole is None else whole


def in_comfyui(content: dict[str, torch.Tensor], layer: str) -> torch.Tensor:
    """What ComfyUI adds to a layer's weight at strength 1: calculate_weight of comfy/weight_adapter/lokr.py (commit 179c2d3).

    One rank, that of the last factor which is a product; alpha counts only where there is one."""
    rank, factors = None, []
    for name in ("lokr_w1", "lokr_w2"):
        factor = content.get(f"{layer}.{name}")
        if factor is None:
            rank = content[f"{layer}.{name}_b"].shape[0]
            factor = content[f"{layer}.{name}_a"] @ content[f"{layer}.{name}_b"]
        factors.append(factor)
    scale = 1.0 if rank is None else content[f"{layer}.alpha"].item() / rank
    return scale * torch.kron(*factors)


@pytest.mark.parametrize("alpha", [3, 2])
def test_what_lycoris_saved_is_gone_on_from_with_any_alpha(
    tiny_flux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alpha: float
) -> None:
    monkeypatch.setattr(LycorisNetwork, "TARGET_REPLACE_MODULE", ["FluxAttention"])
    theirs = transformer.load(tiny_flux).float()
    network = create_lycoris(theirs, 1.0, linear_dim=2, linear_alpha=3, algo="lokr", factor=4)
    network.apply_to()
    with torch.no_grad():
        for number, value in enumerate(network.parameters()):
            value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(number)) * 0.1)
    network.save_weights(str(tmp_path / lora.FILE), torch.float32, {})
    settings = lokr_of(rank=2, alpha=alpha, factor=4, targets=("all",))
    model = adapted(tiny_flux, settings)
    lora.load(model, settings, tmp_path)
    torch.testing.assert_close(prediction(model), prediction(theirs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lokr_of(rank=2, alpha=6, factor=8), "in the shape .* set lora.rank and lora.lokr"),
        (lokr_of(rank=3, alpha=6, factor=4), "set lora.rank and lora.lokr"),
        (lokr_of(factor=4, full_matrix=True), "other factors or modules than lora asks for"),
        (lokr_of(rank=2, alpha=6, factor=4, targets=("all",)), "set lora.targets"),
    ],
)
def test_adapters_of_another_shape_are_refused(tiny_flux: Path, tmp_path: Path, other: Lora, words: str) -> None:
    settings = lokr_of(rank=2, alpha=6, factor=4)
    lora.save(trained(adapted(tiny_flux, settings)), settings, tmp_path)
    with pytest.raises(ConfigurationError, match=words):
        lora.load(adapted(tiny_flux, other), other, tmp_path)


def test_adapters_of_another_algorithm_are_refused(tiny_flux: Path, tmp_path: Path) -> None:
    settings = KINDS["whole"]
    model = adapted(tiny_flux, settings)
    lora.save(trained(model), settings, tmp_path)
    with pytest.raises(ConfigurationError, match=r"of the algorithm LoKr, .* set lora\.algorithm to LoKr"):
        lora.load(model, Lora(), tmp_path)


def test_the_same_seed_makes_the_same_adapters(tiny_flux: Path) -> None:
    settings = KINDS["products"]
    one = trained(adapted(tiny_flux, settings))
    torch.rand(3)
    same, other = trained(adapted(tiny_flux, settings)), trained(adapted(tiny_flux, settings, seed=2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_factors_are_float32_beside_frozen_bfloat16_or_quantized_weights(tiny_flux: Path) -> None:
    model = transformer.load(tiny_flux)
    lora.add_adapters(model, KINDS["products"], FLUX1.presets, seed=0)
    quantize(FLUX1.blocks_of(model), QuantizeBase.INT8, device=torch.device("cpu"))
    assert {value.dtype for value in trained(model).values()} == {torch.float32}
    assert all(lokr.MARK in name for name in trained(model))
    assert {value.dtype for value in model.parameters() if not value.requires_grad} == {torch.bfloat16}
    assert trained(model).keys() == trained(adapted(tiny_flux, KINDS["products"])).keys()


@pytest.mark.deep
def test_dropout_is_part_of_training_and_not_of_evaluation(tiny_flux: Path) -> None:
    model = adapted(tiny_flux, KINDS["products"].model_copy(update={"dropout": 0.5}))
    move(model)
    assert not torch.equal(prediction(model), prediction(model))
    model.eval()
    assert torch.equal(prediction(model), prediction(model))


def test_an_adapter_is_compiled_in_one_graph() -> None:
    layer = lokr.KroneckerLinear("layer", torch.nn.Linear(24, 16), lokr_of(rank=2, factor=4), FLUX1.presets)
    torch.nn.init.ones_(layer.lokr_w2_b)
    values = torch.randn(2, 3, 24, requires_grad=True)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(values), layer(values))
    compiled(values).sum().backward()
    assert layer.lokr_w1.grad.abs().sum() > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_keeps_no_more_for_the_backward_pass_than_the_inputs() -> None:
    tokens, width = 4608, 3072
    base = torch.nn.Linear(width, width, dtype=torch.bfloat16, device="cuda").requires_grad_(requires_grad=False)
    layer = lokr.KroneckerLinear("layer", base, lokr_of(full_matrix=True), FLUX1.presets)
    torch.nn.init.normal_(layer.lokr_w2, std=0.01)
    values = torch.randn(1, tokens, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = layer(values)
    kept = torch.cuda.memory_allocated() - before - result.numel() * 2
    assert kept < 1e6
    dense = torch.nn.functional.linear(values.float(), torch.kron(layer.lokr_w1, layer.lokr_w2))
    torch.testing.assert_close(result.float() - base(values).float(), dense, rtol=0.05, atol=0.05)
    result.float().sum().backward()
    assert layer.lokr_w1.grad.isfinite().all()
