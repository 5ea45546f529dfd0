"""What of Qwen-Image's captions no other family promises, against diffusers' own pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import family_pipelines  # noqa: E402, F401 - diffusers' pipelines, before anything of ours

from oarlock_trainer.models.qwenimage.captions import BEFORE  # noqa: E402
from oarlock_trainer.models.qwenimage.encoded import DROPPED  # noqa: E402

if TYPE_CHECKING:
    from tiny_pipelines import Tiny

pytestmark = pytest.mark.parametrize("tiny", ["qwen_image"], indirect=True)


def test_as_many_tokens_stand_before_a_caption_as_are_dropped(tiny: Tiny) -> None:
    assert tiny.pipeline.prompt_template_encode.partition("{}")[0] == BEFORE
    assert len(tiny.pipeline.tokenizer(BEFORE).input_ids) == DROPPED == tiny.pipeline.prompt_template_encode_start_idx


def test_of_the_text_encoder_what_sees_pictures_is_left_out(tiny: Tiny) -> None:
    names = [name for name, _ in tiny.captions._network.named_parameters()]
    assert names
    assert not any("visual" in name for name in names)


def test_behind_a_caption_alone_stand_zeros(tiny: Tiny) -> None:
    (alone,), _, (length,) = tiny.captions.encode(["a cat"])
    assert 0 < length < tiny.captions.tokens
    assert not alone[length:].any()
