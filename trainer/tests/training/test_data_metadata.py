"""Headers, captions, the table, and what is put into quarantine."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from oarlock_api.dataset import Captions, Dataset
from oarlock_trainer.data import quarantine
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.metadata import discovery
from oarlock_trainer.data.metadata.captions import caption
from oarlock_trainer.data.metadata.table import Picture, Table, read_table, write_table
from oarlock_trainer.data.quarantine import Rejected
from oarlock_trainer.data.sources.local import LocalSource
from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def dataset(folder: Path, **fields: Any) -> Dataset:
    return Dataset.model_validate({"name": "photos", "source": {"path": str(folder)}, **fields})


def save(path: Path, size: tuple[int, int], text: str | None = "a cat", **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "teal").save(path, **options)
    if text is not None:
        path.with_suffix(".txt").write_text(text)


def test_pictures_are_listed_sorted_with_their_path_below_the_source(tmp_path: Path) -> None:
    save(tmp_path / "b" / "2.png", (8, 8))
    save(tmp_path / "a.JPG", (8, 8))
    (tmp_path / "notes.md").write_text("no picture")
    save(tmp_path / ".hidden" / "3.png", (8, 8))
    assert LocalSource(tmp_path).pictures() == ["a.JPG", "b/2.png"]


def test_a_source_that_is_not_there_is_the_jobs_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"source\.path"):
        LocalSource(tmp_path / "nowhere")


def test_a_scan_finds_sizes_and_captions_and_names_what_is_bad(tmp_path: Path) -> None:
    save(tmp_path / "good.png", (30, 20))
    save(tmp_path / "mute.png", (30, 20), text=None)
    (tmp_path / "broken.png").write_bytes(b"no picture at all")
    found, bad = discovery.scan(dataset(tmp_path), LocalSource(tmp_path), LocalSource(tmp_path).pictures())
    assert [(one.name, one.size, one.caption) for one in found] == [("good.png", Size(30, 20), "a cat")]
    assert {(one.name, one.kind) for one in bad} == {("broken.png", "unreadable"), ("mute.png", "without caption")}


def test_a_caption_that_is_no_text_and_a_header_that_claims_too_much_are_named_and_not_fatal(tmp_path: Path) -> None:
    save(tmp_path / "good.png", (8, 8))
    save(tmp_path / "latin.png", (8, 8))
    (tmp_path / "latin.txt").write_bytes("caf\u00e9".encode("latin-1"))
    save(tmp_path / "bomb.png", (8, 8))
    body = bytearray((tmp_path / "bomb.png").read_bytes())
    body[16:24] = (60000).to_bytes(4, "big") * 2
    body[29:33] = zlib.crc32(body[12:29]).to_bytes(4, "big")
    (tmp_path / "bomb.png").write_bytes(body)
    source = LocalSource(tmp_path)
    found, bad = discovery.scan(dataset(tmp_path), source, ["good.png", "latin.png", "bomb.png"])
    assert [one.name for one in found] == ["good.png"]
    assert {(one.name, one.kind) for one in bad} == {("latin.png", "unreadable"), ("bomb.png", "unreadable")}


def test_a_turned_photograph_counts_as_it_is_seen(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "turned.jpg", (30, 20), exif=exif)
    found, _ = discovery.scan(dataset(tmp_path), LocalSource(tmp_path), ["turned.jpg"])
    assert found[0].size == Size(20, 30)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "from the file"),
        ({"prepend": "sks style,"}, "sks style, from the file"),
        ({"filters": ["from\\s"]}, "the file"),
        ({"strategy": "Filename"}, "my red cat"),
        ({"strategy": "Fixed", "text": "a thing"}, "a thing"),
    ],
)
def test_captions_by_strategy(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    save(tmp_path / "my_red-cat.png", (8, 8), text="from the \n file\n")
    assert caption(Captions.model_validate(settings), LocalSource(tmp_path), "my_red-cat.png") == expected


def test_an_empty_caption_is_none(tmp_path: Path) -> None:
    save(tmp_path / "a.png", (8, 8), text=" \n")
    assert caption(Captions(), LocalSource(tmp_path), "a.png") is None


def picture(name: str) -> Picture:
    return Picture(
        dataset="photos", name=name, width=30, height=20, target_width=64, target_height=48, caption="ein Hündchen",
        image_key="0" * 32, text_key="1" * 32,
    )  # fmt: skip


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = Table(pictures=(picture("a.png"), picture("b.png")), fingerprint="f", job_uid="u")
    write_table(tmp_path / "data" / "table.parquet", table)
    assert read_table(tmp_path / "data" / "table.parquet") == table


def test_a_table_that_is_absent_or_torn_is_none(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    assert read_table(path) is None
    write_table(path, Table(pictures=(picture("a.png"),), fingerprint="f", job_uid="u"))
    body = path.read_bytes()
    for length in (0, 3, len(body) // 2, len(body) - 1):
        path.write_bytes(body[:length])
        assert read_table(path) is None


def rejected(count: int) -> list[Rejected]:
    return [Rejected("photos", f"{number}.png", "unreadable", "unreadable: torn") for number in range(count)]


def test_a_few_bad_pictures_are_listed_by_name_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "private" / "quarantine.jsonl"
    quarantine.write(path, rejected(2))
    quarantine.check_bound(rejected(2), pictures=100, listed_in=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["name"], line["reason"]) for line in lines] == [
        ("0.png", "unreadable: torn"),
        ("1.png", "unreadable: torn"),
    ]


def test_too_many_bad_pictures_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="6 of 100 pictures cannot be used"):
        quarantine.check_bound(rejected(6), pictures=100, listed_in=tmp_path)
    quarantine.check_bound(rejected(100), pictures=10_000, listed_in=tmp_path)
