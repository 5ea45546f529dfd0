"""The work of encoding is cut by the table alone, whatever is stored already, and dealt out completely."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock_local.pytest_tiers import examples
from oarlock_trainer.data.entries import picture_at
from oarlock_trainer.data.metadata.table import Table, TableManifest, TablePart, write_part
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.preprocess.units import EMPTY, latent_work, share, text_work

if TYPE_CHECKING:
    from collections.abc import Sequence

CAPTIONS = st.lists(st.integers(0, 9), min_size=1, max_size=3)
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([64, 512, 1024]), st.integers(0, 200), CAPTIONS),
    min_size=1,
    max_size=120,
)
"""(data set, width, picture, captions): the same picture may stand in several rows, the same caption in many."""


def table(rows: Sequence[tuple[int, int, int, list[int]]], left_out: tuple[int, ...] = ()) -> Table:
    rows = sorted(rows, key=lambda row: row[0])
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number in sorted({row[0] for row in rows}):
            some = [row for row in rows if row[0] == number]
            columns: dict[str, Any] = {
                "name": [str(row[2]) for row in some],
                "captions": [[str(caption) for caption in row[3]] for row in some],
                "image_key": [row[2].to_bytes(8, "little") + row[1].to_bytes(8, "little") for row in some],
                "text_keys": [[caption.to_bytes(16, "little") for caption in row[3]] for row in some],
            }
            columns |= {name: [row[1] for row in some] for name in ("width", "target_width")}
            columns |= {name: [64] * len(some) for name in ("height", "target_height")}
            write_part(Path(folder), f"{number}.arrow", columns)
            parts.append(TablePart(file=f"{number}.arrow", dataset=number, rows=len(some)))
        manifest = TableManifest(
            fingerprint="f", job_uid="u", datasets=("a", "b"), parts=tuple(parts), left_out=left_out
        )
        return Table(Path(folder), manifest)


def units(work: np.ndarray) -> set[tuple[tuple[int, int], ...]]:
    """What each unit holds, whatever its number."""
    return {
        tuple((int(row), int(caption)) for row, caption, _ in unit.tolist())
        for unit in share(work, rank=0, world_size=1)
    }


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_every_missing_picture_is_in_one_unit_of_one_size_and_stored_ones_move_no_border(
    rows: list[tuple[int, int, int, list[int]]], draw: Any
) -> None:
    found = table(rows)
    everything = latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=found.kept, wanted=found.kept)
    keys = [found.picture(int(row)).image_key for row in everything["row"]]
    assert sorted(keys) == sorted({found.picture(row).image_key for row in range(len(found))})
    whole = units(everything)
    for unit in whole:
        assert len({(found.picture(row).dataset, found.picture(row).target) for row, _ in unit}) == 1
    stored = {key for key in keys if draw.random() < 0.5}
    missing = np.array([found.picture(row).image_key not in stored for row in range(len(found))])
    rest = units(latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=missing, wanted=found.kept))
    left = {tuple(one for one in unit if missing[one[0]]) for unit in whole}
    assert rest == left - {()}


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_every_missing_caption_is_in_one_unit_once_and_the_empty_one_too(
    rows: list[tuple[int, int, int, list[int]]], draw: Any
) -> None:
    found = table(rows)
    flat = [caption for row in range(len(found)) for caption in found.picture(row).text_keys]
    everything = text_work(found, FLUX1.encoded, missing=np.ones(len(flat) + 1, dtype=bool), unpadded=False)
    keys = [found.picture(row).text_keys[caption] for row, caption, _ in everything.tolist() if row != EMPTY]
    assert sorted(keys) == sorted(set(flat))
    assert (everything["row"] == EMPTY).sum() == 1
    stored = {key for key in keys if draw.random() < 0.5}
    missing = np.array([key not in stored for key in flat] + [False])
    work = text_work(found, FLUX1.encoded, missing=missing, unpadded=True)
    left = [found.picture(row).text_keys[caption] for row, caption, _ in work.tolist()]
    assert sorted(left) == sorted(set(flat) - stored)


@given(ROWS, st.integers(1, 9))
def test_ranks_have_all_units_together_and_none_twice(
    rows: list[tuple[int, int, int, list[int]]], world_size: int
) -> None:
    found = table(rows)
    work = latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=found.kept, wanted=found.kept)
    dealt = [unit.tolist() for rank in range(world_size) for unit in share(work, rank=rank, world_size=world_size)]
    assert sorted(entry for unit in dealt for entry in unit) == sorted(work.tolist())
    assert len({unit[0][2] for unit in dealt}) == len(dealt)


@given(ROWS)
def test_what_is_mirrored_has_units_of_its_own(
    rows: list[tuple[int, int, int, list[int]]],
) -> None:
    found = table(rows)
    twice = np.tile(found.kept, 2)
    work = latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=twice, wanted=twice)
    pictures = [picture_at(found, int(entry)) for entry in work["row"]]
    assert len({picture.image_key for picture in pictures}) == len(work)
    for unit in units(work):
        assert len({picture_at(found, entry).mirrored for entry, _ in unit}) == 1
    for mirrored in (False, True):
        keys = {picture_at(found, row + mirrored * len(found)).image_key for row in range(len(found))}
        assert {picture.image_key for picture in pictures if picture.mirrored is mirrored} == keys


def test_large_buckets_are_cut_into_units_of_whole_batches_largest_first() -> None:
    found = table([(0, 1024, number, [0]) for number in range(100)] + [(0, 64, number, [0]) for number in range(40)])
    work = latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=found.kept, wanted=found.kept)
    lengths = [
        (found.picture(int(unit["row"][0])).target.width, len(unit)) for unit in share(work, rank=0, world_size=1)
    ]
    assert lengths == [(1024, 16)] * 6 + [(1024, 4)] + [(64, 16)] * 2 + [(64, 8)]


def test_rows_that_are_left_out_and_datasets_that_are_not_made_beforehand_have_no_work() -> None:
    found = table([(0, 64, 1, [1]), (0, 64, 2, [2]), (1, 64, 3, [3])], left_out=(1,))
    beforehand = found.kept & np.array([True, True, False])
    assert latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=found.kept, wanted=beforehand)[
        "row"
    ].tolist() == [0]
    texts = np.append(np.repeat(found.kept, found.caption_counts()), [False])
    assert text_work(found, FLUX1.encoded, missing=texts, unpadded=False)["row"].tolist() == [0, 2]
    assert (
        len(latent_work(found, FLUX1.encoded, grid=FLUX1.grid, missing=np.zeros(3, dtype=bool), wanted=found.kept)) == 0
    )


def test_videos_have_units_of_their_own_frames_as_large_as_those_of_pictures() -> None:
    """81 frames of 832 x 480 are 4.2 MB of latents, so that a shard holds 64 of them."""
    grid = replace(FLUX1.grid, frames=4)
    with tempfile.TemporaryDirectory() as folder:
        count = 300
        columns: dict[str, Any] = {
            "name": [str(row) for row in range(count)],
            "captions": [["a"]] * count,
            "image_key": [row.to_bytes(16, "little") for row in range(count)],
            "text_keys": [[b"t" * 16]] * count,
            "frames": [81] * 200 + [17] * 100,
        }
        columns |= {name: [832] * count for name in ("width", "target_width")}
        columns |= {name: [480] * count for name in ("height", "target_height")}
        write_part(Path(folder), "clips.arrow", columns)
        parts = (TablePart(file="clips.arrow", dataset=0, rows=count),)
        found = Table(Path(folder), TableManifest(fingerprint="f", job_uid="u", datasets=("clips",), parts=parts))
        work = latent_work(found, FLUX1.encoded, grid=grid, missing=found.kept, wanted=found.kept)
        lengths = [
            (found.picture(int(unit["row"][0])).frames, {found.picture(int(row)).frames for row in unit["row"]})
            for unit in share(work, rank=0, world_size=1)
        ]
    assert all({frames} == all_of_it for frames, all_of_it in lengths)
    assert [frames for frames, _ in lengths] == [81] * 13 + [17] * 7, "of the whole, 512 units would be of one each"
