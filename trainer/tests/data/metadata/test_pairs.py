"""Pairs: found by the names of pictures, from a listing of their own; what has none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from oarlock_api.dataset import ConditioningKind, Dataset
from oarlock_api.location import S3Connection
from oarlock_api.training import Training
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.metadata.listing import Stems, write_stems
from oarlock_trainer.data.metadata.pairs import Paired
from oarlock_trainer.data.metadata.pieces import Piece
from oarlock_trainer.data.metadata.recipe import Recipe, table_fingerprint
from oarlock_trainer.data.metadata.rows import PictureRows, make_rows
from oarlock_trainer.data.metadata.sources import pairs_of
from oarlock_trainer.data.metadata.table import Table, TableManifest, TablePart, write_part
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

NAMES = ("a.jpg", "deep/b.png", "deep/c.final.png", "d.webp")


class Listed:
    """One piece of pictures without looking."""

    pieces = (Piece("one", len(NAMES)),)
    groups = (range(1),)

    def read(self, group: int, wanted: Sequence[int], on: Callable[[int], None]) -> Iterator[tuple[int, PictureRows]]:
        del group
        for number in wanted:
            on(len(NAMES))
            yield number, found(*NAMES)


def found(*names: str) -> PictureRows:
    count = len(names)
    return PictureRows(
        names=pa.array(names, pa.string()), versions=pa.repeat("v", count), width=np.full(count, 64),
        height=np.full(count, 64), captions=pa.array([["a cat"]] * count, pa.list_(pa.string())),
    )  # fmt: skip


def paired(folder: Path, *masks: str) -> Paired:
    for name in masks:
        path = folder / "masks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    files = LocalFiles(folder / "masks", field="f")
    return Paired(Listed(), Stems(folder, write_stems(files, folder)), kind=ConditioningKind.MASK, where="/masks")


def rows(one: Paired) -> PictureRows:
    ((_, made),) = one.read(0, [0], lambda _: None)
    return made


def training(**dataset: Any) -> Training:
    sets = [{"name": "photos", "source": {"path": "/data/photos"}} | dataset]
    model = {"family": "Flux1", "path": "/m"}
    return Training.model_validate({"model": model, "steps": 1, "resolution": 64, "data": {"datasets": sets}})


def recipe(**dataset: Any) -> Recipe:
    settings = training(**dataset)
    (own,) = settings.data.datasets
    pairs = "/data/masks" if own.conditioning else ""
    encoders = Encoders(vae="v", text="t")
    return Recipe(training=settings, dataset=own, source="/data/photos", encoders=encoders, pairs=pairs)


MASKED: dict[str, Any] = {"conditioning": {"kind": "Mask", "source": {"path": "/data/masks"}}}


def test_a_pair_has_the_path_of_its_picture_whatever_either_ends_in(tmp_path: Path) -> None:
    made = rows(paired(tmp_path, "a.png", "deep/b.jpg", "deep/c.final.webp", "deep/d.png", "b.png", "d.txt", "d.png"))
    assert made.names.to_pylist() == list(NAMES)
    assert made.pairs
    assert made.pairs[0].to_pylist() == ["a.png", "deep/b.jpg", "deep/c.final.webp", "d.png"]
    assert not made.bad


def test_a_picture_without_its_pair_is_named_with_what_to_add(tmp_path: Path) -> None:
    made = rows(paired(tmp_path, "a.png", "d.png", "b.png"))
    assert made.names.to_pylist() == ["a.jpg", "d.webp"]
    assert len(made.width) == len(made.captions) == 2
    assert [(one.name, one.kind) for one in made.bad] == [
        ("deep/b.png", "without mask"), ("deep/c.final.png", "without mask"),
    ]  # fmt: skip
    assert "/masks has no picture deep/b.png, nor one with another ending; add it" in made.bad[0].reason


def test_a_source_without_any_picture_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    made = rows(paired(tmp_path))
    assert (len(made.names), len(made.bad)) == (0, len(NAMES))
    columns, facts = make_rows(made, recipe(**MASKED))
    assert len(columns["pair"]) == 0
    assert facts.bad == {"without mask": len(NAMES)}


def test_another_listing_of_pairs_makes_other_pieces(tmp_path: Path) -> None:
    first = paired(tmp_path, "a.png").pieces
    assert paired(tmp_path).pieces == first
    assert paired(tmp_path, "e.png").pieces != first


def test_a_mask_has_a_key_by_its_own_version_and_its_pictures_cut_and_the_picture_the_one_of_before(
    tmp_path: Path,
) -> None:
    made = rows(paired(tmp_path, "a.png", "deep/b.png", "deep/c.final.png", "d.png"))
    columns, _ = make_rows(made, recipe(**MASKED))
    plain, _ = make_rows(found(*NAMES), recipe())
    assert columns["image_key"].equals(plain["image_key"])
    assert "pair" not in plain
    keys = columns["pair_key"].to_pylist()
    assert len({*keys, *columns["image_key"].to_pylist()}) == 2 * len(NAMES)
    (tmp_path / "masks/d.png").write_bytes(b"another")
    changed, _ = make_rows(rows(paired(tmp_path)), recipe(**MASKED))
    assert [one == other for one, other in zip(changed["pair_key"].to_pylist(), keys, strict=True)] == [True] * 3 + [
        False
    ]
    larger, _ = make_rows(made, recipe(**MASKED, resolution=128.0, resolutionType="Pixel"))
    assert not set(larger["pair_key"].to_pylist()) & set(keys)


def test_masks_change_the_fingerprint_of_their_data_set_and_of_no_other() -> None:
    assert recipe(**MASKED).fingerprint() != recipe().fingerprint()
    encoders = Encoders(vae="v", text="t")
    assert table_fingerprint(training(**MASKED), encoders) != table_fingerprint(training(), encoders)


def test_a_reference_that_a_model_takes_in_another_way_is_another_table_and_another_pair(tmp_path: Path) -> None:
    """Of the same encoders: one flavor's records are no other's."""
    edits = {"conditioning": {"kind": "Reference", "source": {"path": "/masks"}}}
    dataset, encoders = Dataset.model_validate({"name": "d", "source": {"path": "/d"}} | edits), Encoders("v", "t")
    seen = set()
    for flavor in ("Kontext", "Fill"):
        model = {"family": "Flux1", "flavor": flavor, "path": "/m"}
        sets = {"datasets": [dataset.to_manifest()]}
        job = Training.model_validate({"model": model, "steps": 1, "resolution": 64, "data": sets})
        own = Recipe(training=job, dataset=dataset, source="s", encoders=encoders)
        made, _ = make_rows(rows(paired(tmp_path, "a.png")), own)
        seen |= {own.fingerprint(), table_fingerprint(job, encoders), *made["pair_key"].to_pylist()[:1]}
    assert len(seen) == 6


def test_a_table_has_parts_with_pairs_beside_parts_without(tmp_path: Path) -> None:
    made = rows(paired(tmp_path, "a.png", "deep/b.png", "deep/c.final.png", "d.png"))
    with_pairs, _ = make_rows(made, recipe(**MASKED))
    plain, _ = make_rows(found("e.png"), recipe())
    write_part(tmp_path, "pairs.arrow", with_pairs)
    write_part(tmp_path, "plain.arrow", plain)
    parts = (
        TablePart(file="plain.arrow", dataset=0, rows=1),
        TablePart(file="pairs.arrow", dataset=1, rows=len(NAMES)),
    )
    table = Table(tmp_path, TableManifest(fingerprint="f", job_uid="u", datasets=("one", "two"), parts=parts))
    assert [table.picture(row).pair for row in range(5)] == ["", "a.png", "deep/b.png", "deep/c.final.png", "d.png"]
    keys = table.pair_keys()
    assert not keys[0].any()
    assert [key.tobytes() for key in keys[1:]] == with_pairs["pair_key"].to_pylist()


@pytest.mark.parametrize(
    ("pictures", "masks"),
    [
        ({"path": "PHOTOS"}, {"path": "PHOTOS/masks"}),
        ({"path": "PHOTOS"}, {"path": "PHOTOS"}),
        ({"s3": {"bucket": "data"}}, {"s3": {"bucket": "data", "prefix": "masks"}}),
        ({"s3": {"bucket": "data", "prefix": "a/"}}, {"s3": {"bucket": "data", "prefix": "/a/masks"}}),
    ],
)
def test_masks_within_the_pictures_are_refused_and_beside_them_are_not(
    tmp_path: Path, pictures: dict[str, Any], masks: dict[str, Any]
) -> None:
    (tmp_path / "photos/masks").mkdir(parents=True)
    (tmp_path / "photos-masks").mkdir()

    def dataset(source: dict[str, Any], pairs: dict[str, Any]) -> Dataset:
        source, pairs = (
            {"path": one["path"].replace("PHOTOS", str(tmp_path / "photos"))} if "path" in one else one
            for one in (source, pairs)
        )
        body = {"name": "photos", "source": source, "conditioning": {"kind": "Mask", "source": pairs}}
        return Dataset.model_validate(body)

    locations = Locations(connections=[S3Connection()])
    with pytest.raises(ConfigurationError, match=r'datasets\["photos"\].conditioning.source: .* lies within'):
        pairs_of(dataset(pictures, masks), locations)
    beside = {"path": "PHOTOS-masks"} if "path" in pictures else {"s3": {"bucket": "data", "prefix": "a-masks"}}
    source = pictures if "path" in pictures else {"s3": {"bucket": "data", "prefix": "a"}}
    assert pairs_of(dataset(source, beside), locations) is not None


def test_a_folder_of_masks_that_is_not_there_is_named_by_its_field(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    sets = {"conditioning": {"kind": "Mask", "source": {"path": str(tmp_path / "gone")}}}
    (dataset,) = training(source={"path": str(tmp_path / "photos")}, **sets).data.datasets
    with pytest.raises(ConfigurationError, match=r'datasets\["photos"\].conditioning.source.path: .*gone is no folder'):
        pairs_of(dataset, Locations())
