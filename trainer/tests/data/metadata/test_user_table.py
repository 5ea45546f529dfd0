"""Tables of pictures: Parquet and JSON lines, their columns, and what is wrong with them."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from user_tables import Set, write

from oarlock_trainer.data.metadata import table_files
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError
from oarlock_trainer.storage.local import LocalFiles

CATS = {"filename": ["a.png", "b.png"], "width": [64, 96], "height": [64, 64], "caption": ["a cat", "a  dog\n"]}


class Failing(LocalFiles):
    """A mount that times out once the last 8 KiB of a file were read, where Parquet says what is in it."""

    def open(self, name: str) -> BinaryIO:
        class File(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                if self.tell() < len(self.getbuffer()) - (8 << 10):
                    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                return super().read(size)

        with super().open(name) as file:
            return File(file.read())


@pytest.fixture(params=["t.parquet", "t.jsonl"])
def table(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_table_alone_says_which_pictures_there_are_and_what_is_known_of_them(tmp_path: Path, table: str) -> None:
    write(tmp_path, table, CATS | {"score": [0.5, 0.7]})
    found = [(row["name"], row["width"], row["target_width"], row["captions"]) for row in Set(tmp_path, table).rows()]
    assert found == [("a.png", 64, 64, ["a cat"]), ("b.png", 96, 80, ["a dog"])]


def test_columns_may_have_any_name_and_several_may_hold_captions(tmp_path: Path, table: str) -> None:
    columns = {
        "file": ["a.png", "b.png", "c.png"], "w": [64.0, 64.0, 64.0], "h": [64, 64, 64], "short": ["s", None, ""],
        "long": [["l1", "l2"], [], ["l"]], "alt": ["x", "y", "z"],
    }  # fmt: skip
    write(tmp_path, table, columns)
    names = {"filenameColumn": "file", "widthColumn": "w", "heightColumn": "h", "fallbackCaptionColumn": "alt"}
    rows = Set(tmp_path, table, captionColumns=["short", "long"], **names).rows()
    assert [row["captions"] for row in rows] == [["s", "l1", "l2"], ["y"], ["l"]]
    assert [len(row["text_keys"]) for row in rows] == [3, 1, 1]


def test_missing_columns_are_named_with_those_that_are_there(tmp_path: Path, table: str) -> None:
    write(tmp_path, table, {"path": ["a.png"], "width": [1], "text": ["a"]})
    with pytest.raises(
        ConfigurationError, match='no column "filename", "height", "caption"; it has "path", "width", "te'
    ):
        Set(tmp_path, table).pieces()


def test_rows_that_lack_something_are_quarantined_by_their_reason(tmp_path: Path, table: str) -> None:
    columns = {
        "filename": ["a.png", "b.png", "c.png", None, "e.png"], "width": [64, None, 64, 64, 64],
        "height": [64, 64, 64, 64, -1], "caption": ["a", "b", " ", "d", "e"],
    }  # fmt: skip
    write(tmp_path, table, columns)
    photos = Set(tmp_path, table)
    assert [row["name"] for row in photos.rows()] == ["a.png"]
    assert photos.bad() == [
        ("b.png", "without size"), ("c.png", "without caption"), ("e.png", "without size"), ("row 3", "without name"),
    ]  # fmt: skip


def test_a_parquet_column_of_bytes_that_are_no_text_is_the_jobs_fault(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"caf\xe9"]).view(pa.string())
    write(tmp_path, "t.parquet", CATS | {"caption": texts})
    with pytest.raises(ConfigurationError, match=r"t\.parquet: a column is not what .*UTF8"):
        Set(tmp_path, "t.parquet").rows()


def test_a_file_that_is_none_is_the_jobs_fault(tmp_path: Path, table: str) -> None:
    (tmp_path / table).write_text("neither one nor the other\n")
    with pytest.raises(ConfigurationError, match=table):
        Set(tmp_path, table).pieces()


def many(folder: Path, table: str) -> Path:
    """A table whose columns take 20 KB each."""
    names = [f"{number}.png" for number in range(2000)]
    write(folder, table, {"filename": names, "width": [64] * 2000, "height": [64] * 2000, "caption": names})
    return folder / table


def test_a_damaged_row_group_is_the_jobs_fault_and_its_table_is_named(tmp_path: Path) -> None:
    path = many(tmp_path, "t.parquet")
    body = bytearray(path.read_bytes())
    body[100:200] = bytes(100)
    path.write_bytes(body)
    with pytest.raises(ConfigurationError, match=f"{path} is no Parquet file, or a damaged one"):
        Set(tmp_path, "t.parquet").rows()


def test_a_mount_that_times_out_under_a_table_is_the_storages_fault(tmp_path: Path, table: str) -> None:
    path = many(tmp_path, table)
    photos = Set(tmp_path, table)
    photos.files = Failing(tmp_path, field="source")
    with pytest.raises(StorageError, match=f"reading {path}: .*timed out"):
        photos.rows()


def test_a_column_of_another_kind_is_the_jobs_fault(tmp_path: Path) -> None:
    write(tmp_path, "t.parquet", CATS | {"width": ["wide", "wider"]})
    with pytest.raises(ConfigurationError, match=r"a column is not what metadata\.parquet takes it for.*width: string"):
        Set(tmp_path, "t.parquet").rows()


def test_names_without_extension_are_completed_by_one_listing(tmp_path: Path, table: str) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("sub/a.webp", "b.png", "b.txt", "other.jpg"):
        (tmp_path / name).write_bytes(b"")
    write(tmp_path, table, CATS | {"filename": ["sub/a", "c"]})
    photos = Set(tmp_path, table, filenameHasExtension=False)
    assert [row["name"] for row in photos.rows()] == ["sub/a.webp"]
    assert photos.bad() == [("c", "not there")]


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        ({"strategy": "Filename"}, [["a"], ["b"]]),
        ({"strategy": "Fixed", "text": "sks"}, [["sks"], ["sks"]]),
        ({"strategy": "TextFile"}, [["from a file"]]),
    ],
)
def test_captions_may_come_from_elsewhere(
    tmp_path: Path, table: str, captions: dict[str, Any], expected: list[list[str]]
) -> None:
    (tmp_path / "a.txt").write_text("from a file")
    columns = {name: CATS[name] for name in ("filename", "width", "height")}
    write(tmp_path, table, columns)
    assert [row["captions"] for row in Set(tmp_path, table, captions).rows()] == expected


@pytest.mark.parametrize("groups", [7, 1000])
def test_parts_are_cut_within_row_groups_and_keep_the_tables_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    monkeypatch.setattr(table_files, "PART_ROWS", 5)
    names = [f"{number}.png" for number in range(23)]
    columns = {"filename": names, "width": [64] * 23, "height": [64] * 23, "caption": names}
    write(tmp_path, "t.parquet", columns, row_group_size=groups)
    photos = Set(tmp_path, "t.parquet")
    assert [row["name"] for row in photos.rows()] == names
    sizes = [piece.pictures for piece in photos.pieces().pieces]
    assert sizes == ([5, 2] * 3 + [2] if groups == 7 else [5, 5, 5, 5, 3])
