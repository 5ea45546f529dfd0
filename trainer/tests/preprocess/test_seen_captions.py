"""What is cached of a caption that is read beside its reference: what the encoder makes of these two, and of no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from edit_job import alone, edit_job, noise
from PIL import Image

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.data import photographs
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.metadata.scan import picture_cut
from oarlock_trainer.data.pair_sizes import seen_cut
from oarlock_trainer.data.row_latents import bfloat16
from oarlock_trainer.models.families import sight_of
from oarlock_trainer.models.qwenimage.seen_captions import SeeingEncoder
from oarlock_trainer.preprocess.pictures import decode
from oarlock_trainer.preprocess.pipeline import prepare
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.prepared import Prepared
    from oarlock_trainer.runtime.job import Job

PICTURES = 6
"""Two of each aspect, with words and references of their own."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, and references of twice their size."""
    home = tmp_path_factory.mktemp("seen")
    (home / "references").mkdir()
    for seed, name in enumerate(photographs.write(home / "photos", count=PICTURES)):
        with Image.open(home / "photos" / name) as picture:
            reference = Image.fromarray(noise(256, 256, seed)).resize((2 * picture.width, 2 * picture.height))
        reference.save((home / "references" / name).with_suffix(".webp"), lossless=True)
    return home


@pytest.fixture(scope="module")
def job(home: Path, tiny_qwen_image_edit: Path) -> Job:
    return edit_job(
        home / "out", tiny_qwen_image_edit, pictures=home / "photos", references=home / "references", task="Preprocess"
    )


@pytest.fixture(scope="module")
def prepared(job: Job) -> Prepared:
    with alone(job) as ranks:
        return prepare(job, Locations(), ranks, cut=lambda _: [], go_on=lambda: None)


@pytest.fixture(scope="module")
def encoder(tiny_qwen_image_edit: Path) -> SeeingEncoder:
    return SeeingEncoder(tiny_qwen_image_edit, ModelFlavor.EDIT, torch.device("cpu"))


def cached(prepared: Prepared, row: int, caption: int | None, *, mirrored: bool) -> torch.Tensor:
    assert prepared.texts is not None
    assert prepared.seen is not None
    values, (tokens, width, pooled) = prepared.texts.read(prepared.seen.place(row, caption, mirrored=mirrored))
    assert pooled == 0
    return bfloat16(values).reshape(tokens, width)


def seen(job: Job, home: Path, prepared: Prepared, row: int) -> dict[bool, np.ndarray]:
    """A row's reference by the name of its picture: as it stands, and mirrored."""
    picture = prepared.table.picture(row)
    (dataset,) = job.training.data.datasets
    cut = picture_cut(job.training, dataset, picture.name, picture.size)
    content = (home / "references" / picture.name).with_suffix(".webp").read_bytes()
    found = decode(content, seen_cut(cut, sight_of(job.training.model)))
    return {False: found, True: found[:, ::-1]}


def made(encoder: SeeingEncoder, caption: str, reference: np.ndarray) -> torch.Tensor:
    (sequence,), _, (length,) = encoder.encode([caption], [reference])
    return sequence[:length]


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """But for the rounding of sums that were made in another batch."""
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), rtol=2**-7, atol=1e-4)


@pytest.mark.parametrize("mirrored", [False, True], ids=["as it stands", "mirrored"])
@pytest.mark.parametrize("number", [0, None], ids=["caption", "no caption"])
def test_a_cached_text_is_what_the_encoder_makes_of_the_rows_own_caption_and_reference(
    job: Job, home: Path, prepared: Prepared, encoder: SeeingEncoder, *, number: int | None, mirrored: bool
) -> None:
    texts = [cached(prepared, row, number, mirrored=mirrored) for row in range(PICTURES)]
    for row, text in enumerate(texts):
        name = prepared.table.picture(row).name
        words = (home / "photos" / name).with_suffix(".txt").read_text().strip()
        caption, other = ("", words) if number is None else (words, "")
        reference = seen(job, home, prepared, row)
        assert is_same(text, made(encoder, caption, reference[mirrored]))
        # And is told from what it would be the other way round, with other words, or of another row.
        assert not is_same(text, made(encoder, caption, reference[not mirrored]))
        assert not is_same(text, made(encoder, other, reference[mirrored]))
        assert [is_same(text, one) for one in texts].count(True) == 1


def test_a_reference_is_seen_in_its_own_pixels_about_a_megapixel_large(
    home: Path, prepared: Prepared, encoder: SeeingEncoder
) -> None:
    """Not in those that its latents are made of, at the size that is trained."""
    row = next(row for row in range(PICTURES) if prepared.table.picture(row).size == Size(64, 64))
    picture = prepared.table.picture(row)
    with Image.open((home / "references" / picture.name).with_suffix(".webp")) as opened:
        whole = opened.convert("RGB")
    text = cached(prepared, row, None, mirrored=False)
    large = np.asarray(whole.resize((1024, 1024), Image.Resampling.LANCZOS))
    assert is_same(text, made(encoder, "", large))
    small = np.asarray(whole.resize((64, 64), Image.Resampling.LANCZOS))
    assert not is_same(text, made(encoder, "", small))
