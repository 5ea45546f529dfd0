"""Data sets of videos: which are taken, in which buckets, and what is said of the others."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from videos import write_video

from oarlock_api.training import Training
from oarlock_trainer.data.batch_fit import Batch
from oarlock_trainer.data.buckets import Cuts, Size
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.grouping import group, make_buckets, streams_of
from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.build_parts import make_parts
from oarlock_trainer.data.metadata.captions import Wording
from oarlock_trainer.data.metadata.discovery import Discovered
from oarlock_trainer.data.metadata.facts import Facts, facts_of
from oarlock_trainer.data.metadata.listing import write_listing
from oarlock_trainer.data.metadata.recipe import Recipe
from oarlock_trainer.data.metadata.table import Table, TableManifest, TablePart
from oarlock_trainer.data.metadata.table_files import JsonPieces, ParquetPieces
from oarlock_trainer.data.metadata.user_table import UserTable
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.metadata.pieces import Pieces


def training(folder: Path, video: dict[str, Any] | None = None, **dataset: Any) -> Training:
    """Clips, and photographs beside them."""
    clips = {"name": "clips", "source": {"path": str(folder)}, "video": video or {}} | dataset
    photos = {"name": "photos", "source": {"path": "/photos"}}
    return Training.model_validate(
        {
            "model": {"family": "Wan", "path": "/m"}, "steps": 1, "resolution": 64,
            "data": {"datasets": [clips, photos]},
        }
    )  # fmt: skip


@dataclass
class Made:
    """What a scan of the clips makes."""

    table: Table
    facts: Facts

    def row(self, name: str) -> Any:
        return next(one for one in map(self.table.picture, range(len(self.table))) if one.name == name)


def made(folder: Path, job: Training) -> Made:
    dataset, out = job.data.datasets[0], folder / "out"
    files = LocalFiles(folder, field="source")
    recipe = Recipe(training=job, dataset=dataset, source="/clips", encoders=Encoders(vae="v", text="t"))
    pieces: Pieces
    if dataset.metadata and dataset.metadata.parquet:
        settings = dataset.metadata.parquet
        given = UserTable(
            dataset=dataset, settings=settings, files=files, wording=Wording(dataset), stems=None, threads=2
        )
        entry = next(one for one in files.list() if one.name.endswith((".parquet", ".jsonl")))
        pieces = (ParquetPieces if entry.name.endswith(".parquet") else JsonPieces)(given, files, entry)
    else:
        listed = write_listing(files, out, with_captions=True, videos=True)
        pieces = Discovered(dataset, files, out, listed, threads=2)
    (part,) = make_parts(pieces, range(len(pieces.groups)), recipe, out, on=lambda _: None)
    parts = (TablePart(file=part.file, dataset=0, rows=part.rows),)
    manifest = TableManifest(fingerprint="f", job_uid="u", datasets=("clips", "photos"), parts=parts)
    return Made(Table(out, manifest), facts_of(out, part.file))


def test_videos_are_rows_with_the_frames_of_their_bucket(tmp_path: Path) -> None:
    write_video(tmp_path / "short.webm", frames=17)
    write_video(tmp_path / "b" / "long.mp4", frames=40, text="a longer one")
    write_video(tmp_path / "fast.avi", frames=60, rate=32.0, size=(48, 64))
    (tmp_path / "photo.png").write_bytes(b"no video")
    found = made(tmp_path, training(tmp_path))
    assert [found.row(name).target for name in ("short.webm", "b/long.mp4", "fast.avi")] == [
        Size(80, 48, 17), Size(80, 48, 33), Size(48, 80, 17),
    ]  # fmt: skip
    assert found.row("b/long.mp4").captions == ("a longer one",)
    assert found.row("fast.avi").size == Size(48, 64)
    assert (found.facts.found, found.facts.bad, found.facts.left_out) == (3, {}, {})


def test_what_is_too_short_is_left_out_by_a_name_and_what_is_damaged_is_bad(tmp_path: Path) -> None:
    write_video(tmp_path / "short.webm", frames=16)
    write_video(tmp_path / "fine.webm", frames=17)
    write_video(tmp_path / "untold.webm", frames=17, text=None)
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    (tmp_path / "torn.txt").write_text("a caption")
    found = made(tmp_path, training(tmp_path))
    assert [found.table.picture(row).name for row in range(len(found.table))] == ["fine.webm"]
    assert found.facts.left_out == {"video.minFrames": 1}
    assert found.facts.bad == {"unreadable": 1, "without caption": 1}
    reasons = {one.name: one.reason for one in found.facts.listed}
    assert reasons["torn.mp4"] == "unreadable: it is no video, or a damaged one"


def test_buckets_are_told_apart_by_their_frames_and_so_are_their_streams(tmp_path: Path) -> None:
    for number in range(4):
        write_video(tmp_path / f"{number}.webm", frames=20 if number < 3 else 33)
    job = training(tmp_path)
    table = made(tmp_path, job).table
    assert [(size, rows.tolist()) for _, size, rows in group(table, job)] == [
        (Size(80, 48, 17), [0, 1, 2]),
        (Size(80, 48, 33), [3]),
    ]
    buckets = make_buckets(table, job, Batch(per_rank=1, ranks=1, accumulation=1))
    assert streams_of(buckets, job) == (("clips/80x48x17", 3), ("clips/80x48x33", 1))


def test_a_bucket_that_fills_no_step_is_named_with_its_frames(tmp_path: Path) -> None:
    for number in range(3):
        write_video(tmp_path / f"{number}.webm", frames=20 if number < 2 else 33)
    job = training(tmp_path)
    table = made(tmp_path, job).table
    with pytest.raises(ConfigurationError, match=r"1\.67x33 +1 .*(?s:.)*a larger video\.frameInterval"):
        make_buckets(table, job, Batch(per_rank=2, ranks=1, accumulation=1))


def test_latents_of_other_frames_or_another_rate_have_other_keys(tmp_path: Path) -> None:
    write_video(tmp_path / "a.webm", frames=40)

    def key(**video: Any) -> bytes:
        found: bytes = made(tmp_path, training(tmp_path, video)).row("a.webm").image_key
        return found

    assert key() == key(frames=33) == key(minFrames=33), "the same frames"
    assert key() == key(fps=16) == key(fps=16.0), "the same number a second"
    assert len({key(), key(frames=17), key(fps=12.0), key(fps=24.0)}) == 4


def key_of(name: str, **video: Any) -> str:
    one = np.array([64], dtype=np.int64)
    cuts = Cuts(scaled_width=one, scaled_height=one, left=one, top=one, target_width=one, target_height=one)
    found = keys.image_keys(pa.array([name]), pa.array(["1"]), cuts, source="/photos", encoder="v", **video)
    return bytes(found.to_pylist()[0]).hex()


def test_keys_of_pictures_are_what_they_were_before_there_were_videos() -> None:
    assert key_of("a.png") == "bd4c087b58db3bfc6d414bd7ce061ac5"


def test_keys_of_videos_stay_what_they_are() -> None:
    frames = np.array([33], dtype=np.int64)
    assert (
        key_of("a.webm", frames=frames, fps=16.0)
        == key_of("a.webm", frames=frames, fps=16)
        == "560bd06657c7694ce2244e5b20ee3855"
    )


def test_a_folder_of_the_other_kind_is_told(tmp_path: Path) -> None:
    write_video(tmp_path / "clips" / "a.webm")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").touch()

    def listed(folder: str, *, videos: bool) -> None:
        write_listing(
            LocalFiles(tmp_path / folder, field="source"), tmp_path / "out", with_captions=True, videos=videos
        )

    with pytest.raises(ConfigurationError, match="holds 1 videos and no pictures: set video for its data set"):
        listed("clips", videos=False)
    with pytest.raises(ConfigurationError, match="holds 1 pictures and no videos: remove video from its data set"):
        listed("photos", videos=True)


TOLD = {"filename": ["a.webm", "b.webm", "c.webm"], "width": [64] * 3, "height": [48] * 3, "caption": ["a", "b", "c"]}


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_table_says_frames_and_rate_and_no_video_is_opened(tmp_path: Path, ending: str) -> None:
    columns = TOLD | {"frames": [40, 16, None], "rate": [16.0, 16.0, 16.0]}
    if ending == "parquet":
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = {"location": {"path": str(tmp_path / f"t.{ending}")}, "fpsColumn": "rate"}
    job = training(tmp_path, captions={"strategy": "Parquet"}, metadata={"parquet": place})
    found = made(tmp_path, job)
    assert [found.table.picture(row).target for row in range(len(found.table))] == [Size(80, 48, 33)]
    assert found.facts.left_out == {"video.minFrames": 1}
    assert found.facts.bad == {"without length": 1}
    assert found.facts.listed[0].reason == "no number of frames, or of frames a second, that a video has"


def test_a_table_of_videos_without_their_rate_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    pq.write_table(pa.table(TOLD | {"frames": [40] * 3}), content)
    (tmp_path / "t.parquet").write_bytes(content.getvalue())
    place = {"location": {"path": str(tmp_path / "t.parquet")}}
    job = training(tmp_path, captions={"strategy": "Parquet"}, metadata={"parquet": place})
    with pytest.raises(ConfigurationError, match=r'no column "fps"; .* with video framesColumn, fpsColumn'):
        made(tmp_path, job)
