"""What Wan alone promises: of videos, of its captions' spelling and padding, and of other models with its transformer."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.weights import Model, ModelFamily
from oarlock_trainer.models import folder
from oarlock_trainer.models.families import family_in, family_of
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_pipelines import Tiny

preload.settle_environment()
import family_pipelines  # noqa: E402, F401 - diffusers' pipelines, before anything of ours
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import UniPCMultistepScheduler  # noqa: E402
from diffusers.pipelines.wan.pipeline_wan import prompt_clean  # noqa: E402
from flux_pair import distance  # noqa: E402

from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.wan.captions import cleaned  # noqa: E402
from oarlock_trainer.models.wan.code import CODE  # noqa: E402
from oarlock_trainer.models.wan.family import WAN  # noqa: E402
from oarlock_trainer.models.wan.latents import joined, parted  # noqa: E402

CPU = torch.device("cpu")


def test_the_model_of_a_job_has_no_buffers_that_could_not_be_moved(tiny_wan: Path) -> None:
    """diffusers has its positions in such as are not saved: made without memory, they have no values."""
    model = transformer.load(tiny_wan)
    assert not list(model.buffers())
    assert next(model.to("cpu").parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "caption", ["a  cat\n\tand a dog ", "cats &amp; dogs", "&amp;lt;b&amp;gt; of a\u00a0kind", "ﬁne “quotes”", ""]
)
def test_captions_are_cleaned_as_the_pipeline_cleans_prompts_without_ftfy(
    caption: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffusers.pipelines.wan.pipeline_wan.is_ftfy_available", lambda: False)
    assert cleaned(caption) == prompt_clean(caption)


def test_a_picture_is_a_video_of_one_frame(tiny_wan: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), dtype=np.uint8)
    encoder = PictureEncoder(tiny_wan, WAN, CPU, code=CODE)
    assert torch.equal(encoder.encode(pixels, None), encoder.encode(pixels[:, None], None))


def test_frames_of_a_channel_follow_each_other_outside_of_the_family() -> None:
    video = torch.arange(2 * 3 * 4 * 5 * 6).view(2, 3, 4, 5, 6)
    assert torch.equal(joined(video)[0, :4], video[0, 0])
    assert torch.equal(parted(joined(video), 3), video)


@pytest.mark.parametrize("tiny", ["wan"], indirect=True)
def test_padding_that_is_not_masked_is_seen_as_zeros(tiny: Tiny) -> None:
    """So the model was trained: what a job caches without a mask has its full length."""
    (caption, *_), _, (length, *_) = tiny.captions.encode(["a cat"])
    (wanted,) = tiny.texts(["a cat"])
    given = tiny.batch()

    def predicted(model: Any, text: torch.Tensor) -> torch.Tensor:
        both = text.float().expand(2, -1, -1)
        return CODE.velocity(
            model, given.latents, given.sigmas, text=both, pooled=given.pooled, text_mask=None, guidance=None
        )

    with torch.no_grad():
        whole = predicted(tiny.installed, caption[None])
        assert distance(whole, predicted(tiny.pipeline.transformer, wanted.sequence)) < 0.01
        assert distance(predicted(tiny.installed, caption[None, :length]), whole) > 0.01


def test_a_scheduler_of_another_kind_is_refused() -> None:
    other = UniPCMultistepScheduler()
    with pytest.raises(ValueError, match="none of UniPC for flow matching"):
        CODE.set_noise_levels(other, 4, 24)


def test_a_flavor_is_a_size_of_one_family(tiny_wan: Path) -> None:
    small, large = (family_of(Model(family=ModelFamily.WAN, flavor=one, path="/m")) for one in WAN.flavors)
    assert (small.published.width, large.published.width) == (1536, 5120)
    assert family_in(tiny_wan) is WAN
    folder.check(tiny_wan, large, field="training.model.path")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (
            {"transformer_2": ["diffusers", "WanTransformer3DModel"]},
            "has transformer_2: it is Wan 2.2 of two transformers",
        ),
        ({"expand_timesteps": True}, "has expand_timesteps: it is Wan 2.2 of 5 billion parameters"),
    ],
)
def test_another_wan_with_the_same_transformer_is_refused_by_its_pipeline(
    tiny_wan: Path, tmp_path: Path, index: dict[str, Any], words: str
) -> None:
    other = shutil.copytree(tiny_wan, tmp_path / "other")
    path = other / "model_index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | index))
    with pytest.raises(ConfigurationError, match=words):
        folder.check(other, WAN, field="training.model.path")
