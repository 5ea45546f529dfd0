"""What FLUX.2 alone promises of its encoders, its tokens' places and its noise levels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.data.cache_keys import encoder_fingerprint, fingerprints
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import Flux2KleinPipeline  # noqa: E402 - before ours: a rank imports less of diffusers
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu  # noqa: E402

from oarlock_trainer.models.flux2.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.flux2.family import FLUX2  # noqa: E402
from oarlock_trainer.models.flux2.language_models import QWEN3  # noqa: E402
from oarlock_trainer.models.flux2.shift import TRAINED, shift_exponent  # noqa: E402
from oarlock_trainer.models.flux2.velocity import image_ids, text_ids  # noqa: E402

CPU = torch.device("cpu")
KLEIN = ModelFlavor.KLEIN_BASE_4B


@pytest.fixture(scope="module")
def pipeline(tiny_flux2: Path) -> Any:
    found = Flux2KleinPipeline.from_pretrained(tiny_flux2, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


def test_what_is_cached_is_told_from_what_another_family_makes_of_the_same_encoders(tiny_flux2: Path) -> None:
    """Other families take other layers of the same Qwen3."""
    mine, other = (fingerprints(tiny_flux2, family) for family in (FLUX2, replace(FLUX2, cache_mark="")))
    assert (mine.vae, mine.text) == (
        encoder_fingerprint([tiny_flux2 / "vae"], "flux2"),
        encoder_fingerprint([tiny_flux2 / "text_encoder", tiny_flux2 / "tokenizer"], "flux2"),
    )
    assert mine.vae != other.vae
    assert mine.text != other.text


def test_a_text_encoder_with_too_few_layers_is_refused(tiny_flux2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(QWEN3, layers=(9, 18, 29))
    monkeypatch.setattr("oarlock_trainer.models.flux2.captions.language_model", lambda _: changed)
    with pytest.raises(ConfigurationError, match="has 28 layers, of which the 29th is asked"):
        CaptionEncoder(tiny_flux2, KLEIN, CPU)


def test_places_of_latents_and_text_are_the_pipelines(pipeline: Any) -> None:
    assert torch.equal(image_ids(3, 5, CPU), pipeline._prepare_latent_ids(torch.zeros(1, 1, 3, 5))[0].float())
    assert torch.equal(text_ids(7, CPU), pipeline._prepare_text_ids(torch.zeros(1, 7, 1))[0].float())


def test_noise_levels_are_shifted_as_the_pipeline_shifts_them() -> None:
    for tokens in (16, 256, 4096, 4300, 4301, 16_384):
        for steps in (4, 28, 50):
            assert shift_exponent(tokens, steps) == pytest.approx(compute_empirical_mu(tokens, steps))
    for tokens in (256, 1024, 4096):
        expected = math.exp(compute_empirical_mu(tokens, 50))
        assert schedule.automatic_shift(tokens, TRAINED) == pytest.approx(expected)
