"""The scan with real ranks: one table for any number of them, and every part made once."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import signal
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from PIL import Image

from oarlock_api.contract.job_file import JobFile
from oarlock_local import patience
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.metadata import listing, sources
from oarlock_trainer.data.metadata.discovery import header, unreadable
from oarlock_trainer.data.metadata.facts import counts_of
from oarlock_trainer.data.metadata.scan import Scanned, picture_cut, scan, table_folder
from oarlock_trainer.data.metadata.table import PARTS, Table, publish
from oarlock_trainer.engine import process_group
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, TrainingEnd
from oarlock_trainer.runtime.job import Job, RankInfo, parse_training
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.storage.locations import Locations

FORK = multiprocessing.get_context("fork")


def save(path: Path, size: tuple[int, int] = (64, 64), text: str | None = "a cat", **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "teal").save(path, **options)
    if text is not None:
        path.with_suffix(".txt").write_text(text)


def job(home: Path, *datasets: dict[str, Any], rank: int = 0, ranks: int = 1, **training: Any) -> Job:
    body = {
        "model": {"family": "Flux1", "path": "/m"}, "steps": 1, "resolution": 64,
        "data": {"datasets": [{"name": "photos", "source": {"path": str(home / "photos")}} | one for one in datasets]},
    } | training  # fmt: skip
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(home / "output"), training=body,
    )  # fmt: skip
    rank_info = RankInfo(rank=rank, local_rank=rank, world_size=ranks, local_world_size=ranks)
    return Job(file=file, training=parse_training(file), rank_info=rank_info, simulate_gpus=False)


def scanned(
    home: Path, *datasets: dict[str, Any], ranks: int = 1, go_on: Any = lambda: None, **training: Any
) -> Scanned:
    """What every rank gets from a scan; raises what all of them raised."""
    meeting = home / f"meeting-{time.monotonic_ns()}"

    def run(rank: int) -> None:
        own = job(home, *(datasets or ({},)), rank=rank, ranks=ranks, **training)
        group = process_group.join(own, store=dist.FileStore(str(meeting), ranks))
        outcome: Scanned | TrainingEnd
        try:
            outcome = scan(own, Locations(), group, Encoders(vae="v", text="t"), fingerprint="f", go_on=go_on)
        except TrainingEnd as end:
            outcome = end
        Path(f"{meeting}-{rank}").write_bytes(pickle.dumps(outcome))

    children = [FORK.Process(target=run, args=(rank,)) for rank in range(ranks)]
    for child in children:
        child.start()
    for child in children:
        child.join(patience.SECONDS)
        assert child.exitcode == 0
    outcomes = [pickle.loads(Path(f"{meeting}-{rank}").read_bytes()) for rank in range(ranks)]  # noqa: S301 - ours
    if isinstance(outcomes[0], TrainingEnd):
        assert {str(outcome) for outcome in outcomes} == {str(outcomes[0])}
        raise outcomes[0]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    return outcomes[0]


def parts(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (table_folder(home / "output") / PARTS).iterdir()}


def names(home: Path, scan: Scanned) -> list[str]:
    table = Table(table_folder(home / "output"), scan.manifest)
    return [table.picture(row).name for row in range(len(table))]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine pictures in chunks of two."""
    monkeypatch.setattr(listing, "_FEWEST", 2)
    for number in range(9):
        save(tmp_path / "photos" / f"{number}.png", (64 + 32 * (number % 2), 64), f"cat {number}")
    return tmp_path


def test_the_table_is_the_same_for_any_number_of_ranks(photos: Path) -> None:
    alone = scanned(photos)
    made = parts(photos)
    assert names(photos, alone) == [f"{number}.png" for number in range(9)]
    for ranks in (2, 4):
        for path in (table_folder(photos / "output") / PARTS).iterdir():
            path.unlink()
        assert scanned(photos, ranks=ranks) == alone
        assert parts(photos) == made


def test_a_scan_that_was_killed_goes_on_where_it_was(photos: Path) -> None:
    whole = scanned(photos)
    undisturbed = parts(photos)
    folder = table_folder(photos / "output") / PARTS
    for path in folder.iterdir():
        path.unlink()

    def until_two_parts() -> None:
        if len(list(folder.glob("*.arrow"))) >= 2:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AssertionError):
        scanned(photos, go_on=until_two_parts)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.arrow")}
    assert 2 <= len(before) < len(undisturbed)
    assert scanned(photos) == whole
    assert {name: body for name, body in parts(photos).items() if name.endswith(".arrow")} == undisturbed
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name in before} == before


def test_a_picture_that_changed_makes_its_part_anew_and_no_other(photos: Path) -> None:
    first = scanned(photos)
    save(photos / "photos" / "4.png", (128, 64), "another cat")
    second = scanned(photos)
    assert sum(one != other for one, other in zip(first.manifest.parts, second.manifest.parts, strict=True)) == 1
    table = Table(table_folder(photos / "output"), second.manifest)
    assert (table.picture(4).width, table.picture(4).captions) == (128, ("another cat",))


def test_a_caption_that_changed_changes_its_key_alone(photos: Path) -> None:
    first = Table(table_folder(photos / "output"), scanned(photos).manifest).picture(4)
    (photos / "photos" / "4.txt").write_text("another, longer cat")
    second = Table(table_folder(photos / "output"), scanned(photos).manifest).picture(4)
    assert second.image_key == first.image_key
    assert second.text_keys != first.text_keys


def test_what_is_bad_is_named_and_the_others_are_rows(photos: Path) -> None:
    (photos / "photos" / "3.png").write_bytes(b"no picture at all")
    (photos / "photos" / "5.txt").unlink()
    (photos / "photos" / "6.txt").write_bytes("caf\u00e9".encode("latin-1"))
    found = scanned(photos, ranks=2)
    assert [(bad.name, bad.kind) for bad in found.rejected] == [
        ("3.png", "unreadable"), ("5.png", "without caption"), ("6.png", "with an unreadable caption"),
    ]  # fmt: skip
    assert names(photos, found) == [f"{number}.png" for number in (0, 1, 2, 4, 7, 8)]
    lines = (photos / "output" / ".oarlock" / "quarantine.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["3.png", "5.png", "6.png"]


def test_too_many_bad_pictures_end_all_ranks(photos: Path) -> None:
    for number in range(6):
        (photos / "photos" / f"{number}.txt").unlink()
    listed = photos / "output" / ".oarlock" / "quarantine.jsonl"
    with pytest.raises(ConfigurationError, match=rf"(?s)6 of 9 pictures cannot be used.*They are listed in {listed}"):
        scanned(photos, ranks=2)


def test_what_a_limit_leaves_out_is_counted_by_its_field(photos: Path) -> None:
    save(photos / "photos" / "small.png", (20, 20))
    save(photos / "photos" / "blurred.png", (50, 50))
    save(photos / "photos" / "tower.png", (40, 200))
    save(photos / "photos" / "panorama.png", (210, 60))
    limits = {"minimum": 30, "maximumUpscalePercent": 10, "minimumAspect": 0.25, "maximumAspect": 3}
    found = scanned(photos, {"size": limits})
    counts = counts_of(table_folder(photos / "output"), found.manifest)[0]
    assert (counts.found, counts.rows, counts.bad) == (13, 9, {})
    by_aspect = {"size.minimumAspect": 1, "size.maximumAspect": 1}
    assert counts.left_out == {"size.minimum": 1, "size.maximumUpscalePercent": 1} | by_aspect
    assert not found.rejected


def test_a_dataset_that_its_limits_leave_nothing_of_is_the_jobs_fault(photos: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'"photos": no picture is left of 9 .*9 by size\.minimum'):
        scanned(photos, {"size": {"minimum": 500}})


def test_a_folder_with_nothing_in_it_is_not_blamed_on_limits(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(ConfigurationError, match=r'"photos": there is no picture below .*photos: correct its source$'):
        scanned(tmp_path)


@pytest.mark.deep
def test_at_most_so_many_samples_are_taken_whatever_the_number_of_ranks(photos: Path) -> None:
    few = scanned(photos, {"maxSamples": 4})
    assert len(names(photos, few)) == 4
    assert scanned(photos, {"maxSamples": 4}, ranks=3) == few
    counts = counts_of(table_folder(photos / "output"), few.manifest)[0]
    assert (counts.found, counts.left_out) == (9, {"maxSamples": 5})
    assert set(names(photos, few)) < set(names(photos, scanned(photos, {"maxSamples": 6})))
    assert names(photos, scanned(photos, {"maxSamples": 4}, seed=7)) != names(photos, few)


def test_one_more_picture_changes_at_most_one_of_those_that_are_taken(photos: Path) -> None:
    before = set(names(photos, scanned(photos, {"maxSamples": 4})))
    save(photos / "photos" / "new.png")
    assert len(before - set(names(photos, scanned(photos, {"maxSamples": 4})))) <= 1


def test_a_preserved_dataset_is_not_listed_again_and_the_others_are(photos: Path) -> None:
    old = {"name": "old", "preserveScan": True}
    more = {"name": "more", "source": {"path": str(photos / "more")}}
    save(photos / "more" / "a.png")
    first = scanned(photos, old, more)
    publish(table_folder(photos / "output"), first.manifest)
    save(photos / "photos" / "new.png")
    save(photos / "more" / "b.png")
    renamed = {"name": "renamed", "preserveScan": True}
    second = scanned(photos, more, renamed, ranks=2)
    assert second.manifest.datasets == ("more", "renamed")
    assert names(photos, second) == ["a.png", "b.png", *(f"{number}.png" for number in range(9))]


def test_a_preserved_dataset_keeps_the_rows_that_were_left_out(photos: Path) -> None:
    more = {"name": "more", "source": {"path": str(photos / "more")}}
    save(photos / "more" / "a.png")
    first = scanned(photos, more, {"preserveScan": True})
    publish(table_folder(photos / "output"), replace(first.manifest, left_out=(3,)))
    assert scanned(photos, {"preserveScan": True}, more).manifest.left_out == (2,)


def test_a_preserved_dataset_with_other_settings_is_scanned(photos: Path) -> None:
    publish(table_folder(photos / "output"), scanned(photos).manifest)
    save(photos / "photos" / "new.png")
    found = scanned(photos, {"preserveScan": True, "captions": {"strategy": "Filename"}})
    assert len(names(photos, found)) == 10


def test_a_picture_is_cut_later_as_it_was_in_the_scan(photos: Path) -> None:
    dataset = {"crop": {"style": "Random", "aspect": "Random", "aspects": [0.5, 1.0, 2.0]}}
    found = scanned(photos, dataset)
    own = job(photos, dataset)
    table = Table(table_folder(photos / "output"), found.manifest)
    for row in range(9):
        picture = table.picture(row)
        cut = picture_cut(own.training, own.training.data.datasets[0], picture.name, picture.size)
        assert cut.target == picture.target
    assert len({table.picture(row).target for row in range(9)}) > 1


def test_a_source_that_is_not_there_is_the_jobs_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'datasets\["photos"\]\.source\.path: .*photos is no folder here'):
        sources.source_of(job(tmp_path, {}).training.data.datasets[0], Locations())


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_a_turned_photograph_counts_as_it_is_seen(tmp_path: Path, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / f"turned.{suffix}", (30, 20), exif=exif)
    assert header(LocalFiles(tmp_path, field="source"), f"turned.{suffix}") == Size(20, 30)


def test_a_storage_that_fails_is_no_damaged_picture() -> None:
    with pytest.raises(StorageError, match=r"reading 1\.png: .*Connection timed out"):
        unreadable("1.png", OSError(errno.ETIMEDOUT, "Connection timed out"))
    assert unreadable("1.png", FileNotFoundError(errno.ENOENT, "gone")).kind == "unreadable"


def test_a_header_that_claims_more_than_any_picture_has_is_damaged(photos: Path) -> None:
    path = photos / "photos" / "3.png"
    body = bytearray(path.read_bytes())
    body[16:24] = (60000).to_bytes(4, "big") * 2
    body[29:33] = zlib.crc32(body[12:29]).to_bytes(4, "big")
    path.write_bytes(body)
    assert [(bad.name, bad.kind) for bad in scanned(photos).rejected] == [("3.png", "unreadable")]


def test_a_header_may_be_longer_than_most(tmp_path: Path) -> None:
    save(tmp_path / "long.jpg", (500, 400), icc_profile=b"0" * 200_000)
    save(tmp_path / "late.tiff", (500, 400))
    assert (tmp_path / "late.tiff").stat().st_size > 100_000
    files = LocalFiles(tmp_path, field="source")
    assert header(files, "long.jpg") == header(files, "late.tiff") == Size(500, 400)


def test_only_headers_are_read(tmp_path: Path) -> None:
    save(tmp_path / "a.png", (500, 400))
    body = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(body[:60])
    assert header(LocalFiles(tmp_path, field="source"), "a.png") == Size(500, 400)
