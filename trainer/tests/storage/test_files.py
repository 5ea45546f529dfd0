"""What every place for files promises, on a folder and on a real S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.storage.files import Files

CONTENT = bytes(range(256)) * 40


def finished(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "finished"
    path.write_bytes(content)
    return path


def test_what_is_written_is_read(files: Files) -> None:
    files.write("a/b.bin", CONTENT)
    assert files.read("a/b.bin") == CONTENT


@pytest.mark.parametrize(
    ("start", "length"), [(0, 1), (10, 100), (10_000, None), (10_200, 1000), (10_240, 1), (99_999, 5), (0, 0), (5, 0)]
)
def test_a_range_is_what_the_same_slice_is(files: Files, start: int, length: int | None) -> None:
    files.write("a", CONTENT)
    assert files.read("a", start, length) == CONTENT[start:][:length]


def test_an_empty_file_is_a_file(files: Files) -> None:
    files.write("empty", b"")
    assert files.read("empty") == files.read("empty", 0, 10) == b""
    assert [entry.size for entry in files.list()] == [0]


@pytest.mark.parametrize("length", [None, 0, 10])
def test_a_file_that_is_not_there_is_a_file_not_found_error(files: Files, length: int | None) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files.read("nowhere", 0, length)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files.open("nowhere")
    assert files.find("nowhere") is None


def test_a_folder_is_no_file(files: Files) -> None:
    files.write("folder/a", b"1")
    assert files.find("folder") is None
    assert files.find("folder/a/b") is None


def test_a_list_tells_names_and_sizes_in_order_and_nothing_hidden(files: Files) -> None:
    for name in ("b", "a/z", "a.txt", ".hidden", ".folder/a", "a/.tmp-b"):
        files.write(name, name.encode())
    assert [(entry.name, entry.size) for entry in files.list()] == [("a.txt", 5), ("a/z", 3), ("b", 1)]


def test_a_place_that_does_not_exist_is_empty(files: Files) -> None:
    assert files.list() == []


def test_list_and_find_agree_and_the_version_follows_the_content(files: Files) -> None:
    files.write("a", b"one")
    [listed] = files.list()
    assert files.find("a") == listed
    files.write("a", b"two")
    assert files.list()[0].version != listed.version


def test_an_opened_file_is_read_and_sought_like_any(files: Files) -> None:
    files.write("a", CONTENT)
    with files.open("a") as file:
        assert file.read(10) == CONTENT[:10]
        assert file.seek(-10, os.SEEK_END) == len(CONTENT) - 10
        assert file.read() == CONTENT[-10:]
        assert file.read() == b""
        file.seek(5000)
        file.seek(3, os.SEEK_CUR)
        assert (file.read(7), file.tell()) == (CONTENT[5003:5010], 5010)
        file.seek(20_000)
        assert file.read(1) == b""


def test_a_finished_file_is_uploaded_and_stays_here(files: Files, tmp_path: Path) -> None:
    files.write("a/b", b"before")
    source = finished(tmp_path, CONTENT)
    files.upload("a/b", source)
    assert files.read("a/b") == CONTENT
    assert source.read_bytes() == CONTENT


def test_a_removed_file_is_gone_and_may_be_removed_again(files: Files) -> None:
    files.write("a", b"1")
    files.remove("a")
    files.remove("a")
    assert files.list() == []


def test_names_may_hold_what_people_put_into_them(files: Files) -> None:
    names = ["a b+c.jpg", "ünïcode/😀.png", "100%.txt", "a&b=c?d#e", "q'\"<>"]
    for name in names:
        files.write(name, name.encode())
    assert [entry.name for entry in files.list()] == sorted(names)
    assert [files.read(name).decode() for name in names] == names


def test_readers_see_one_whole_version_while_others_replace_it(files: Files) -> None:
    versions = [bytes([number]) * 200_000 for number in range(8)]
    files.write("a", versions[0])
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(files.write, "a", version) for version in versions]
        reads = [pool.submit(files.read, "a") for _ in range(16)]
        assert all(read.result() in versions for read in reads)
        assert [write.result() for write in writes] == [None] * 8


def test_what_a_kill_left_of_an_owner_s_writes_is_removed_and_nobody_else_s(tmp_path: Path) -> None:
    def killed(owner: str) -> Path:
        """A process of `owner` that is killed while it writes; returns what it leaves."""
        before = set(tmp_path.iterdir())
        program = (
            "import os, sys, pathlib\n"
            "from oarlock_trainer.storage.local import LocalFiles\n"
            "pathlib.Path.write_bytes = lambda path, content: (path.touch(), os.kill(os.getpid(), 9))\n"
            "LocalFiles(pathlib.Path(sys.argv[1]), field='f', owner=sys.argv[2]).write('shard-1.bin', b'1')\n"
        )
        assert subprocess.run([sys.executable, "-c", program, str(tmp_path), owner], check=False).returncode == -9
        (left,) = set(tmp_path.iterdir()) - before
        return left

    own, other, nobody = killed("uid"), killed("another"), killed("")
    files = LocalFiles(tmp_path, field="f", owner="uid")
    files.write("shard-2.bin", b"2")
    for one in (files, LocalFiles(tmp_path, field="f"), LocalFiles(tmp_path / "nowhere", field="f", owner="uid")):
        one.remove_unfinished()
    assert not own.exists()
    assert sorted(tmp_path.iterdir()) == sorted([other, nobody, tmp_path / "shard-2.bin"])


def test_the_place_says_where_it_is(files: Files, tmp_path: Path, folder: str) -> None:
    assert files.where == str(tmp_path / "place") or files.where.startswith(f"s3://pictures/{folder}/ at http://127.")
