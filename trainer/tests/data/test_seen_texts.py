"""Texts that are encoded beside references: which there are, where they stand, and what their keys tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.training import Training
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.data.metadata.table import Table, TableManifest, TablePart, write_part
from oarlock_trainer.data.seen_texts import SeenTexts, seen_texts

if TYPE_CHECKING:
    from pathlib import Path

EMPTY = b"e" * 16
CAPTIONS = [["one"], ["two", "three"], ["four"]]


def training(*, flip: bool = False, dropout: float = 0.1, flavor: str = "Edit") -> Training:
    dataset: dict[str, Any] = {"name": "edits", "source": {"path": "/a"}, "randomFlip": flip}
    if flavor == "Edit":
        dataset["conditioning"] = {"kind": "Reference", "source": {"path": "/b"}}
    return Training.model_validate(
        {
            "model": {"family": "QwenImage", "flavor": flavor, "path": "/model"}, "steps": 1, "data": {"datasets": [dataset]},
            "objective": {"captionDropout": dropout},
        }
    )  # fmt: skip


def keys(names: list[str]) -> list[bytes]:
    return [name.encode().ljust(16) for name in names]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three rows, of which the last is left out; the second has two captions."""
    rows = ["a", "b", "c"]
    columns = {
        "name": [f"{row}.png" for row in rows], "captions": CAPTIONS, "text_keys": [keys(one) for one in CAPTIONS],
        "image_key": keys(rows), "pair": [f"{row}.webp" for row in rows], "pair_key": keys([f"pair {row}" for row in rows]),
        **{side: np.full(3, 64, dtype=np.uint32) for side in ("width", "height", "target_width", "target_height")},
    }  # fmt: skip
    write_part(tmp_path, "part.arrow", columns)
    part = TablePart(file="part.arrow", dataset=0, rows=3)
    return Table(
        tmp_path,
        TableManifest(fingerprint="", job_uid="", datasets=("edits",), parts=(part,), left_out=(2,)),
    )


def test_a_model_that_sees_no_references_has_no_such_texts(table: Table) -> None:
    assert seen_texts(table, training(flavor="V1")) is None
    assert seen_texts(table, training()) is not None


def test_each_caption_and_none_stands_beside_its_rows_reference(table: Table) -> None:
    texts = SeenTexts(table, training(flip=True))
    assert len(texts) == 2 * (4 + 3)
    assert texts.rows.tolist() == 2 * [0, 1, 1, 2, 0, 1, 2]
    found = texts.at(texts.place(1, 1, mirrored=False), EMPTY)
    assert (found.row, found.caption, found.reference.file, found.reference.mirrored) == (1, "three", "b.webp", False)
    found = texts.at(texts.place(0, None, mirrored=True), EMPTY)
    assert (found.row, found.caption, found.reference.file, found.reference.mirrored) == (0, "", "a.webp", True)


def test_a_place_is_that_of_its_key_and_no_two_texts_share_one(table: Table) -> None:
    texts = SeenTexts(table, training(flip=True))
    all_keys = texts.keys(EMPTY)
    assert len(np.unique(all_keys, axis=0)) == len(texts)
    assert [texts.at(place, EMPTY).key for place in range(len(texts))] == [key.tobytes() for key in all_keys]


@pytest.mark.parametrize(
    ("flip", "dropout", "wanted"),
    [
        (False, 0.0, [1, 1, 1, 0, 0, 0, 0]),
        (False, 0.1, [1, 1, 1, 0, 1, 1, 0]),
        (True, 0.0, 2 * [1, 1, 1, 0, 0, 0, 0]),
        (True, 0.1, 2 * [1, 1, 1, 0, 1, 1, 0]),
    ],
)
def test_only_what_is_asked_for_is_wanted(table: Table, *, flip: bool, dropout: float, wanted: list[int]) -> None:
    """Mirrored references where pictures are flipped, empty captions where some are left out, and no row that is left out."""
    assert SeenTexts(table, training(flip=flip, dropout=dropout)).wanted().astype(int).tolist() == wanted


def test_of_a_data_set_that_is_only_evaluated_captions_are_wanted_as_they_stand(table: Table) -> None:
    settings = training().model_dump(by_alias=True, exclude_unset=True)
    (edits,) = settings["data"]["datasets"]
    settings["data"]["datasets"] = [edits | {"role": "Evaluation"}, edits | {"name": "others"}]
    texts = SeenTexts(table, Training.model_validate(settings))
    assert texts.wanted().astype(int).tolist() == [1, 1, 1, 0, 0, 0, 0]


def test_a_cut_at_another_size_keeps_its_part_of_the_picture() -> None:
    cut = Cut(scaled=Size(600, 400), left=100, top=8, target=Size(384, 384))
    assert cut.at(Size(384, 384)) == cut
    assert cut.at(Size(768, 768)) == Cut(scaled=Size(1200, 800), left=200, top=16, target=Size(768, 768))
    tight = Cut(scaled=Size(385, 384), left=1, top=0, target=Size(384, 384)).at(Size(1024, 1024))
    assert (tight.left + 1024, tight.top + 1024) <= (tight.scaled.width, tight.scaled.height)
