"""The table of parts: what is written is read, and what is torn is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oarlock_trainer.data.buckets import Size, size_of
from oarlock_trainer.data.metadata.table import (
    PARTS,
    Table,
    TableManifest,
    TablePart,
    open_table,
    part_notes,
    publish,
    write_part,
)

if TYPE_CHECKING:
    from pathlib import Path


def columns(*names: str) -> dict[str, Any]:
    count = len(names)
    return {
        "name": list(names),
        "width": [30] * count,
        "height": [20] * count,
        "target_width": [64] * count,
        "target_height": [48] * count,
        "captions": [["ein H\u00fcndchen", "a dog"]] * count,
        "image_key": [name.encode().rjust(16) for name in names],
        "text_keys": [[b"0" * 16, b"1" * 16]] * count,
    }


def write(folder: Path, **changed: Any) -> TableManifest:
    write_part(folder, "first.arrow", columns("a", "b"), notes="two of them")
    write_part(folder, "empty.arrow", columns())
    write_part(folder, "last.arrow", columns("c"))
    parts = (
        TablePart(file="first.arrow", dataset=0, rows=2),
        TablePart(file="empty.arrow", dataset=0, rows=0),
        TablePart(file="last.arrow", dataset=1, rows=1),
    )
    return replace(TableManifest(fingerprint="f", job_uid="u", datasets=("photos", "more"), parts=parts), **changed)


def test_rows_have_one_order_over_all_parts(tmp_path: Path) -> None:
    publish(tmp_path, write(tmp_path, left_out=(1,)))
    table = open_table(tmp_path)
    assert table is not None
    assert [(table.picture(row).dataset, table.picture(row).name) for row in range(3)] == [
        ("photos", "a"), ("photos", "b"), ("more", "c"),
    ]  # fmt: skip
    assert table.kept.tolist() == [True, False, True]
    assert table.picture(0).captions == ("ein H\u00fcndchen", "a dog")
    assert table.image_keys().tobytes() == b"".join(name.rjust(16) for name in (b"a", b"b", b"c"))
    assert len(table.text_keys()) == table.caption_counts().sum() == 6


def test_a_part_comes_back_with_its_notes(tmp_path: Path) -> None:
    write(tmp_path)
    assert part_notes(tmp_path, "first.arrow") == (2, "two of them")
    assert part_notes(tmp_path, "other.arrow") is None


def test_publishing_removes_the_parts_of_earlier_tables(tmp_path: Path) -> None:
    manifest = write(tmp_path)
    write_part(tmp_path, "old.arrow", columns("z"))
    publish(tmp_path, manifest)
    assert {path.name for path in (tmp_path / PARTS).iterdir()} == {"first.arrow", "empty.arrow", "last.arrow"}


def test_a_part_that_is_torn_or_gone_makes_no_table(tmp_path: Path) -> None:
    publish(tmp_path, write(tmp_path))
    path = tmp_path / PARTS / "first.arrow"
    body = path.read_bytes()
    for length in (0, 3, len(body) // 2, len(body) - 1):
        path.write_bytes(body[:length])
        assert open_table(tmp_path) is None
        assert part_notes(tmp_path, "first.arrow") is None
    path.unlink()
    assert open_table(tmp_path) is None


def test_a_table_is_there_when_it_is_published(tmp_path: Path) -> None:
    manifest = write(tmp_path)
    assert open_table(tmp_path) is None
    assert len(Table(tmp_path, manifest)) == 3


def test_a_part_of_videos_has_their_frames_and_one_of_pictures_has_one_each(tmp_path: Path) -> None:
    write_part(tmp_path, "photos.arrow", columns("a"))
    write_part(tmp_path, "clips.arrow", columns("b", "c") | {"frames": [17, 33]})
    parts = (
        TablePart(file="photos.arrow", dataset=0, rows=1),
        TablePart(file="clips.arrow", dataset=1, rows=2),
    )
    table = Table(tmp_path, TableManifest(fingerprint="f", job_uid="u", datasets=("photos", "clips"), parts=parts))
    assert table.numbers("frames").tolist() == [1, 17, 33]
    assert [table.picture(row).target for row in range(3)] == [Size(64, 48), Size(64, 48, 17), Size(64, 48, 33)]
    assert [size_of(code) for code in table.sizes().tolist()] == [table.picture(row).target for row in range(3)]
