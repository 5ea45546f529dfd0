"""Adapters: what they change, what they leave as it was, and what they are saved as."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.engine import Attention
from oarlock_api.objective import Loss
from oarlock_api.weights import Lora
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from safetensors.torch import load_file, save_file  # noqa: E402

from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lora, low_rank  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, sample_losses  # noqa: E402

SETTINGS = Lora(rank=4, alpha=8)


def adapted(tiny_flux: Path, settings: Lora = SETTINGS, *, seed: int = 1) -> Any:
    model = transformer.load(tiny_flux)
    lora.add_adapters(model, settings, FLUX1.presets, seed=seed)
    return model


def batch(size: int = 2) -> MicroBatch:
    source = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source)

    return MicroBatch(
        latents=draw(size, 4, 8, 6),
        noise=draw(size, 4, 8, 6),
        text=draw(size, 5, 32).to(torch.bfloat16),
        pooled=draw(size, 32).to(torch.bfloat16),
        sigmas=torch.linspace(0.3, 0.8, size),
        guidance=torch.ones(size),
        text_mask=None,
    )


def loss(model: Any, *, keep: bool = False) -> torch.Tensor:
    base = lora.without_adapters(model) if keep else None
    return sample_losses(model, batch(), velocity=velocity, has_guidance=True, measure=Loss.MSE, base=base).mean()


def trained(model: Any) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def move(model: Any) -> None:
    """Something that training might have made of the adapters."""
    with torch.no_grad():
        for number, value in enumerate(trained(model).values()):
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(number)), alpha=0.05)


def test_adapters_alone_are_trained_in_float32_beside_frozen_bfloat16(tiny_flux: Path) -> None:
    model = adapted(tiny_flux)
    assert {value.dtype for value in trained(model).values()} == {torch.float32}
    assert all(".lora_" in name for name in trained(model))
    assert {value.dtype for value in model.parameters() if not value.requires_grad} == {torch.bfloat16}


def test_the_same_seed_makes_the_same_adapters_whatever_was_drawn_before(tiny_flux: Path) -> None:
    one = trained(adapted(tiny_flux))
    torch.rand(3)
    same, other = trained(adapted(tiny_flux)), trained(adapted(tiny_flux, seed=2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_a_new_adapter_changes_no_prediction_and_a_moved_one_does(tiny_flux: Path) -> None:
    plain, model = transformer.load(tiny_flux), adapted(tiny_flux)
    assert torch.equal(loss(model), loss(plain))
    move(model)
    assert not torch.equal(loss(model), loss(plain))
    with lora.without_adapters(model):
        assert torch.equal(loss(model), loss(plain))


@pytest.mark.parametrize("recomputed", quick_first([0, 2, 6]))
def test_data_that_keep_the_model_cost_nothing_at_first_and_pull_a_moved_adapter_back(
    tiny_flux: Path, recomputed: int
) -> None:
    model = adapted(tiny_flux)
    forward.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    assert loss(model, keep=True).item() == 0.0
    move(model)
    before = loss(model, keep=True)
    assert before.item() > 0.0
    before.backward()
    assert {name for name, value in trained(model).items() if value.grad is None} == set()
    with torch.no_grad():
        for value in trained(model).values():
            value.sub_(value.grad, alpha=1e-2 / float(value.grad.norm()))
    assert loss(model, keep=True).item() < before.item()


def test_what_is_left_frozen_gets_no_gradient(tiny_flux: Path) -> None:
    model = adapted(tiny_flux)
    loss(model).backward()
    assert [name for name, value in model.named_parameters() if value.grad is not None] == list(trained(model))


def test_dropout_is_part_of_training_and_not_of_evaluation(tiny_flux: Path) -> None:
    model = adapted(tiny_flux, Lora(rank=4, dropout=0.5))
    move(model)
    assert not torch.equal(loss(model), loss(model))
    model.eval()
    assert torch.equal(loss(model), loss(model))


@pytest.mark.parametrize("preset", sorted(FLUX1.presets.names.keys() - {"tiny", "nano"}))
def test_a_preset_names_layers_that_the_model_has(tiny_flux: Path, preset: str) -> None:
    by_preset = trained(adapted(tiny_flux, Lora(rank=2, targets=(preset,))))
    by_names = trained(adapted(tiny_flux, Lora(rank=2, targets=FLUX1.presets.names[preset])))
    assert by_preset.keys() == by_names.keys()


def test_without_targets_attention_and_feed_forward_get_adapters(tiny_flux: Path) -> None:
    """2 double blocks with 8 + 4 layers, 4 single ones with 3 + 2, and the last layer, which has the name of theirs."""
    assert len(trained(adapted(tiny_flux))) == 2 * (2 * 12 + 4 * 5 + 1)


def test_a_target_that_is_no_layer_is_refused_with_one_that_may_be_meant(tiny_flux: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'"to_w" is the end of no .* to_[qkv]'):
        adapted(tiny_flux, Lora(targets=("to_q", "to_w")))
    with pytest.raises(ConfigurationError, match=r"attn\.to_[qkv] or .* may be meant"):
        adapted(tiny_flux, Lora(targets=("attn.to_x",)))


def test_adapters_that_were_saved_predict_the_same_when_they_are_loaded(tiny_flux: Path, tmp_path: Path) -> None:
    model = adapted(tiny_flux)
    move(model)
    lora.save(trained(model), SETTINGS, tmp_path)
    again = adapted(tiny_flux, seed=2)
    lora.load(again, SETTINGS, tmp_path)
    assert torch.equal(loss(again), loss(model))


@pytest.mark.parametrize("alpha", [4, 8, 6, 1])
def test_a_file_is_as_strong_in_diffusers_and_comfyui_as_in_training_whatever_alpha(
    tiny_flux: Path, tmp_path: Path, alpha: float
) -> None:
    """diffusers' own loader, with the metadata and without; ComfyUI's rule written out."""
    settings = Lora(rank=4, alpha=alpha)
    model = adapted(tiny_flux, settings)
    move(model)
    updates = {
        name: layer.get_delta_weight("default")
        for name, layer in model.named_modules()
        if hasattr(layer, "get_delta_weight")
    }
    lora.save(trained(model), settings, tmp_path)
    content = load_file(tmp_path / lora.FILE)
    save_file(content, tmp_path / "without-metadata.safetensors")
    for name in (lora.FILE, "without-metadata.safetensors"):
        theirs = transformer.load(tiny_flux).float()
        theirs.load_lora_adapter(tmp_path, weight_name=name, prefix="transformer", adapter_name="loaded")
        for layer, update in updates.items():
            torch.testing.assert_close(theirs.get_submodule(layer).get_delta_weight("loaded"), update)
    for layer, update in updates.items():
        torch.testing.assert_close(in_comfyui(content, f"transformer.{layer}"), update)


def in_comfyui(content: dict[str, torch.Tensor], layer: str) -> torch.Tensor:
    """What ComfyUI adds to a layer's weight at strength 1: load_lora of comfy/lora.py, and calculate_weight of
    comfy/weight_adapter/lora.py (commit 0323d87). No metadata is read; an alpha is `.alpha`, else the scale is 1."""
    up, down = content[f"{layer}.lora_B.weight"], content[f"{layer}.lora_A.weight"]
    alpha = content.get(f"{layer}.alpha")
    return (alpha.item() / down.shape[0] if alpha is not None else 1.0) * torch.mm(up, down)


@pytest.mark.parametrize(("trained_with", "goes_on_with"), [(8, 4), (8, 8), (3, 5)])
def test_adapters_are_gone_on_from_with_any_alpha_as_strong_as_they_were(
    tiny_flux: Path, tmp_path: Path, trained_with: float, goes_on_with: float
) -> None:
    settings = Lora(rank=4, alpha=trained_with)
    model = adapted(tiny_flux, settings)
    move(model)
    lora.save(trained(model), settings, tmp_path)
    other = Lora(rank=4, alpha=goes_on_with)
    again = adapted(tiny_flux, other)
    lora.load(again, other, tmp_path)
    torch.testing.assert_close(loss(again), loss(model), rtol=1e-3, atol=1e-4)


def test_a_file_whose_metadata_has_another_alpha_than_its_rank_is_loaded_at_that_strength(
    tiny_flux: Path, tmp_path: Path
) -> None:
    """As SimpleTuner and earlier releases write it: the factors as they are, alpha beside them."""
    model = adapted(tiny_flux)
    move(model)
    factors = {low_rank.file_name(name): value.detach().clone() for name, value in trained(model).items()}
    said = {"transformer.r": 4, "transformer.lora_alpha": 8}
    save_file(factors, tmp_path / lora.FILE, metadata={"lora_adapter_metadata": json.dumps(said)})
    again = adapted(tiny_flux, seed=2)
    lora.load(again, SETTINGS, tmp_path)
    assert torch.equal(loss(again), loss(model))


def test_a_file_that_scales_in_a_way_of_its_own_is_refused(tiny_flux: Path, tmp_path: Path) -> None:
    model = adapted(tiny_flux)
    factors = {low_rank.file_name(name): value.detach().clone() for name, value in trained(model).items()}
    said = {"transformer.r": 4, "transformer.lora_alpha": 8, "transformer.use_rslora": True}
    save_file(factors, tmp_path / lora.FILE, metadata={"lora_adapter_metadata": json.dumps(said)})
    with pytest.raises(ConfigurationError, match="scales its adapters by use_rslora"):
        lora.load(model, SETTINGS, tmp_path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Lora(rank=8, alpha=8), "of rank 4, lora asks for rank 8"),
        (Lora(rank=4, alpha=8, targets=("all",)), "other modules than lora.targets"),
    ],
)
def test_adapters_of_another_kind_are_refused(tiny_flux: Path, tmp_path: Path, settings: Lora, words: str) -> None:
    lora.save(trained(adapted(tiny_flux)), SETTINGS, tmp_path)
    with pytest.raises(ConfigurationError, match=words):
        lora.load(adapted(tiny_flux, settings), settings, tmp_path)
