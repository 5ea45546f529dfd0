"""Texts in batches that were encoded beside references: each sample's is its own, read beside what the sample shows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from dealing import EFFECTIVE, MASK, MIRRORED, ROWS, Making, bits, loader, prepared, training

from oarlock_api.data import Compression
from oarlock_trainer.data.embedding_index import EmbeddingIndex, resolve
from oarlock_trainer.data.records import pack
from oarlock_trainer.data.seen_texts import SeenTexts
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.training import Training
    from oarlock_trainer.data.batches import StepBatch
    from oarlock_trainer.data.prepared import Prepared

STEPS = 40
NO_WORDS = 5000
EMPTY = b"e" * 16


class Dealt(NamedTuple):
    """Of a sample: its picture, its reference, and of which words and beside which reference its text was made."""

    picture: int
    reference: int
    words: int
    beside: int


def edits(*, dropout: float, flip: bool = True, mode: str = "Cache") -> Training:
    sets = [
        {
            "name": "photos", "source": {"path": "/data"}, "randomFlip": flip, "imageEmbeds": {"mode": mode},
            "conditioning": {"kind": "Reference", "source": {"path": "/references"}},
        }
    ]  # fmt: skip
    return training(
        model={"family": "QwenImage", "flavor": "Edit", "path": "/m"}, batchSize=EFFECTIVE, data={"datasets": sets},
        objective={"captionDropout": dropout},
    )  # fmt: skip


def seen_by(folder: Path, settings: Training, *, captions: int = 1) -> Prepared:
    """Each text says what it was made of: its caption, which is a number, and its reference, as latents hold it."""
    data = prepared(folder, captions=captions, masked=True)
    texts, shard, store = SeenTexts(data.table, settings), Shard(), LocalFiles(folder / "seen", field="data")
    for place in range(len(texts)):
        row, key, caption, reference = texts.at(place, EMPTY)
        facts = int(caption or NO_WORDS), row + MASK + MIRRORED * reference.mirrored
        shard.append(pack(key, np.array([facts, facts], dtype=np.uint16).reshape(-1), (1, 2, 2), Compression.NONE))
    shard.publish(store)
    found = resolve(folder / "places", "seen", asked="s", keys=lambda: texts.keys(EMPTY), stores=[store])
    return replace(data, texts=EmbeddingIndex(found, [store]), seen=texts)


def samples(batch: StepBatch) -> list[Dealt]:
    found = []
    for micro in batch.micro_batches:
        assert micro.reference is not None
        for latents, reference, text, pooled in zip(
            micro.latents, micro.reference, micro.text, micro.pooled, strict=True
        ):
            assert bits(text[0]).tolist() == bits(pooled).tolist()
            found.append(Dealt(int(bits(latents)[0]), int(bits(reference)[0]), *bits(pooled).tolist()))
    return found


def dealt(folder: Path, settings: Training, *, captions: int = 1) -> list[Dealt]:
    one = loader(seen_by(folder, settings, captions=captions), settings)
    return [sample for step in range(STEPS) for sample in samples(one.step(step))]


@pytest.mark.parametrize("captions", [1, 3])
def test_a_text_is_of_the_samples_own_words_and_reference_mirrored_where_the_picture_is(
    tmp_path: Path, captions: int
) -> None:
    found = dealt(tmp_path, edits(dropout=0.0), captions=captions)
    assert all(one.beside == one.reference == one.picture + MASK for one in found)
    assert all(one.words // captions == one.picture % MIRRORED for one in found)
    assert {one.picture >= MIRRORED for one in found} == {False, True}
    assert {one.words % captions for one in found} == set(range(captions))


@pytest.mark.parametrize("captions", [1, 3])
def test_where_a_caption_is_left_out_the_text_is_that_of_no_words_beside_the_samples_own_reference(
    tmp_path: Path, captions: int
) -> None:
    found = dealt(tmp_path, edits(dropout=0.25), captions=captions)
    kept = dealt(tmp_path / "kept", edits(dropout=0.0), captions=captions)
    assert all(one.beside == one.picture + MASK for one in found)
    left_out = [one for one in found if one.words == NO_WORDS]
    assert 0.15 < len(left_out) / len(found) < 0.35
    assert {one.picture >= MIRRORED for one in left_out} == {False, True}
    # Of all others nothing changes.
    assert [whole if one.words == NO_WORDS else one for one, whole in zip(found, kept, strict=True)] == kept
    assert [one.picture for one in found] == [one.picture for one in kept]


def test_where_nothing_is_flipped_every_text_is_beside_the_reference_as_it_stands(tmp_path: Path) -> None:
    found = dealt(tmp_path, edits(dropout=0.25, flip=False))
    assert all(one.beside == one.picture + MASK for one in found)
    assert {one.picture for one in found} == set(range(ROWS))


def test_what_takes_the_place_of_a_picture_that_cannot_be_used_has_a_text_of_its_own(tmp_path: Path) -> None:
    settings = edits(dropout=0.25, mode="OnTheFly")
    one = loader(seen_by(tmp_path, settings), settings, encoding=Making([4]))
    found = [sample for step in range(STEPS) for sample in samples(one.step(step))]
    assert {one.picture % MIRRORED for one in found} == set(range(ROWS)) - {4}
    assert all(one.beside == one.picture + MASK for one in found)
    assert all(one.words in (one.picture % MIRRORED, NO_WORDS) for one in found)
