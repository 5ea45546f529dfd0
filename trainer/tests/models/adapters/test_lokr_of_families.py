"""LoKr of the families beside FLUX.1, which test_lokr.py has: LyCORIS loads what is saved, and predicts the same with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import AdapterAlgorithm, Lokr, Lora, ModelFamily
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from exports_in_diffusers import of_two_samples  # noqa: E402
from lycoris import create_lycoris_from_weights  # noqa: E402
from tiny_models import made_tiny  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.adapters import lokr, lora  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.families import FAMILIES  # noqa: E402
from oarlock_trainer.models.family_codes import CODES  # noqa: E402

SETTINGS = Lora(algorithm=AdapterAlgorithm.LOKR, rank=2, alpha=4, lokr=Lokr(factor=4))
"""Of the layers that a family takes where a job names none."""


@pytest.fixture(params=[one for one in ModelFamily if one is not ModelFamily.FLUX1], ids=str)
def family(request: pytest.FixtureRequest) -> ModelFamily:
    found: ModelFamily = request.param
    return found


def loaded(family: ModelFamily, folder: Path) -> Any:
    """In float32, so that arithmetic is compared and not rounding."""
    model = transformer.load(folder).float()
    CODES[family].install(model, attend=attend_with(Attention.SDPA), recomputed=0)
    return model


def trained(model: Any) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def prediction(model: Any, family: ModelFamily) -> torch.Tensor:
    return of_two_samples(model, family, torch.float32)


def test_what_is_saved_is_loaded_by_lycoris_and_predicts_the_same_there(family: ModelFamily, tmp_path: Path) -> None:
    folder = made_tiny(FAMILIES[family].slug)
    model, theirs = loaded(family, folder), loaded(family, folder)
    base = prediction(theirs, family)
    lora.add_adapters(model, SETTINGS, FAMILIES[family].presets, seed=1)
    torch.testing.assert_close(prediction(model, family), base)  # nothing is added before the first step
    with torch.no_grad():
        for number, value in enumerate(trained(model).values()):
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(number)), alpha=0.1)
    moved = prediction(model, family)
    lora.save(trained(model), SETTINGS, tmp_path)
    network, _ = create_lycoris_from_weights(1.0, str(tmp_path / lora.FILE), theirs)
    assert len(network.loras) == len(list(lokr.layers(model))) > 0
    network.apply_to()
    torch.testing.assert_close(prediction(theirs, family), moved, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(moved, base, atol=1e-3)
