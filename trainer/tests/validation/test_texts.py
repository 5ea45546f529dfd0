"""Texts of prompts that are read beside references: each picture's is made of its own reference."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from edit_job import alone, edit_job, noise
from PIL import Image

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.qwenimage.seen_captions import SeeingEncoder
from oarlock_trainer.storage.locations import Locations
from oarlock_trainer.validation.image_requests import read_image_requests
from oarlock_trainer.validation.texts import prepare_texts

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.runtime.job import Job

NAMES = ("boat", "cat")
PROMPT, NEGATIVE = "make it day", "craters"
APART = 0.01
"""Relative distance: far more than what sums are rounded by."""
EDGE = 256
"""Of references, which are square."""
SEEN = {"64x48": ((1184, 1195), (0, 149, 1184, 1045)), "48x64": ((1195, 1184), (149, 0, 1045, 1184))}
"""By the size of a picture: a reference scaled until its middle has that shape and about a megapixel, and the middle."""


@pytest.fixture
def job(tmp_path: Path, tiny_qwen_image_edit: Path) -> Job:
    """Two prompts of the same words, each with a picture of its own, at two sizes."""
    references = tmp_path / "references"
    references.mkdir()
    for seed, name in enumerate(NAMES):
        Image.fromarray(noise(EDGE, EDGE, seed)).save(references / f"{name}.png")
    validation = {
        "everySteps": 1, "prompts": [{"name": name, "prompt": PROMPT} for name in NAMES], "resolutions": [*SEEN],
        "inferenceSteps": 2, "negativePrompt": NEGATIVE, "references": {"path": str(references)},
    }  # fmt: skip
    return edit_job(tmp_path, tiny_qwen_image_edit, pictures=tmp_path, references=references, validation=validation)


@pytest.fixture
def texts(job: Job) -> dict[tuple[str, str], torch.Tensor]:
    """By the words and the file of the picture that is drawn."""
    wanted = read_image_requests(job, Locations())
    with alone(job) as ranks:
        made = prepare_texts(job, Locations(), ranks, wanted, go_on=lambda: None)
    return {(words, one.file): made.read(words, one)[0][0] for one in wanted for words in (PROMPT, NEGATIVE)}


def test_the_same_words_are_another_text_beside_another_reference_or_another_part_of_it(
    texts: dict[tuple[str, str], torch.Tensor],
) -> None:
    assert len(texts) == 2 * len(NAMES) * len(SEEN)
    for one, other in combinations(texts.values(), 2):
        assert one.shape != other.shape or distance(one, other) > APART


def test_a_prompts_text_and_the_negatives_are_what_the_encoder_makes_of_them_beside_the_pictures_own_reference(
    texts: dict[tuple[str, str], torch.Tensor], tmp_path: Path, tiny_qwen_image_edit: Path
) -> None:
    encoder = SeeingEncoder(tiny_qwen_image_edit, ModelFlavor.EDIT, torch.device("cpu"))
    for (words, file), text in texts.items():
        name, size = file.removesuffix(".png").split("-")
        scaled, middle = SEEN[size]
        with Image.open(tmp_path / f"references/{name}.png") as reference:
            shown = np.asarray(reference.resize(scaled, Image.Resampling.LANCZOS).crop(middle))
        (expected,), _, (length,) = encoder.encode([words], [shown])
        torch.testing.assert_close(text[:length].float(), expected.float(), rtol=2**-7, atol=1e-4)
        assert not text[length:].any()


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.float() - other.float()).norm() / other.float().norm())
