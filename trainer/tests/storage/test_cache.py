"""The cache on a node's disk: what it answers, that it stays below its cap, and what crashes leave of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_local.s3_faults import Faults
from oarlock_trainer.storage.cache import CachedFiles
from oarlock_trainer.storage.files import FileEntry
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.storage.room import MAKING_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.s3 import S3Files

MIB = 1 << 20


def kept(disk: Path) -> list[Path]:
    return sorted(path for path in disk.rglob("*") if path.is_file())


def kept_bytes(disk: Path) -> int:
    total = 0
    for path in kept(disk):
        with contextlib.suppress(FileNotFoundError):  # room is being made
            total += path.stat().st_size
    return total


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def place(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "place", field="training.data.datasets[0].source.path")


@pytest.fixture
def far(place: LocalFiles) -> LocalFiles:
    """The same place: take a file away from it, and only the cache can answer."""
    for number in range(20):
        place.write(str(number), bytes([number]) * MIB)
    return place


def cached(files: Files, disk: Path, *, capacity: int = 100 * MIB, processes: int = 1) -> CachedFiles:
    return CachedFiles(files, disk, capacity=capacity, processes=processes)


def settled() -> None:
    """Wait for the threads that make room."""
    for thread in threading.enumerate():
        if thread.name == MAKING_ROOM:
            thread.join(patience.SECONDS)


def hits(cache: CachedFiles, place: Path, names: list[str]) -> list[str]:
    """Which of the files are answered by the cache alone; needs their versions known."""
    away = place.with_name("away")
    place.rename(away)
    found = []
    for name in names:
        try:
            cache.read(name)
        except FileNotFoundError:
            continue
        found.append(name)
    away.rename(place)
    return found


def test_files_and_ranges_are_asked_for_once_in_all_processes(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults, tmp_path: Path
) -> None:
    s3_files.write("a", b"0123456789")
    for _ in range(2):  # two processes see the same folder
        cache = cached(through(), tmp_path / "cache")
        for _ in range(3):
            assert cache.read("a") == b"0123456789"
            assert cache.read("a", 2, 3) == b"234"
    assert [request.method for request in faults.requests] == ["HEAD", "GET", "GET", "HEAD"]


def test_a_changed_file_is_read_anew_by_whoever_comes_after(place: LocalFiles, disk: Path) -> None:
    place.write("a", b"one")
    before = cached(place, disk)
    assert before.read("a") == b"one"
    place.write("a", b"two!")
    assert cached(place, disk).read("a") == b"two!"
    assert before.read("a") == b"one"
    assert before.find("a") == place.find("a")
    assert before.read("a") == b"two!"


def test_a_list_tells_the_versions_of_all_files_at_once(
    s3_files: S3Files, through: Callable[..., S3Files], faults: Faults, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        s3_files.write(name, name.encode())
    cache = cached(through(), tmp_path / "cache")
    cache.list()
    assert [cache.read(name) for name in ("a", "b")] == [b"a", b"b"]
    assert [request.method for request in faults.requests] == ["GET"] * 3


def test_what_is_written_through_the_cache_is_seen_at_once(place: LocalFiles, disk: Path, tmp_path: Path) -> None:
    cache = cached(place, disk)
    cache.write("a", b"one")
    assert cache.read("a") == b"one"
    cache.write("a", b"two!")
    assert cache.read("a") == b"two!"
    (tmp_path / "three").write_bytes(b"three!!")
    cache.upload("a", tmp_path / "three")
    assert cache.read("a") == b"three!!"
    cache.remove("a")
    with pytest.raises(FileNotFoundError):
        cache.read("a")


def test_it_promises_what_the_place_promises(place: LocalFiles, disk: Path) -> None:
    cache = cached(place, disk)
    cache.write("b/a", b"1234")
    assert cache.where == place.where
    assert cache.list() == place.list() == [cache.find("b/a")]
    assert isinstance(cache.find("b/a"), FileEntry)
    assert (cache.find("nowhere"), cache.read("b/a", 9, 1), cache.read("b/a", 1, 0)) == (None, b"", b"")
    with cache.open("b/a") as file:
        assert file.read() == b"1234"


def test_the_least_recently_used_goes_first(far: LocalFiles, disk: Path, tmp_path: Path) -> None:
    cache = cached(far, disk, capacity=10 * MIB)
    names = [str(number) for number in range(7)]
    for number, name in enumerate(names):
        cache.read(name)
        settled()
        newest = max(kept(disk), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    cache.read("0")
    for name in ("10", "11", "12", "13"):
        cache.read(name)
        settled()
    left = hits(cache, tmp_path / "place", names)
    assert "0" in left
    assert left == ["0", *names[-(len(left) - 1) :]]
    assert len(left) < len(names)


@pytest.mark.parametrize("processes", [1, 4])
def test_it_stays_below_its_cap_and_uses_it(far: LocalFiles, disk: Path, processes: int) -> None:
    caches = [cached(far, disk, capacity=20 * MIB, processes=processes) for _ in range(processes)]
    most = 0
    for round_ in range(40):
        for number, cache in enumerate(caches):
            cache.read(str((5 * number + round_) % 20), round_, 800_000)
            most = max(most, kept_bytes(disk))
            settled()
    assert 15 * MIB < most <= 20 * MIB


def test_no_read_waits_for_room_to_be_made_and_the_cap_holds_meanwhile(
    far: LocalFiles, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cached(far, disk, capacity=20 * MIB)
    cache.read("0")
    settled()
    go_on = threading.Event()
    scan = os.scandir

    def slow(path: str) -> object:
        assert threading.current_thread().name == MAKING_ROOM
        assert go_on.wait(patience.SECONDS)
        return scan(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", slow)
        for name in map(str, range(1, 12)):
            assert len(cache.read(name)) == MIB
        go_on.set()
        settled()
    assert len(kept(disk)) == 3  # a process's fifth
    cache.read("12")
    assert len(kept(disk)) == 4


def test_a_piece_that_would_push_out_much_is_not_kept(far: LocalFiles, disk: Path) -> None:
    cache = cached(far, disk, capacity=4 * MIB)
    assert len(cache.read("1")) == MIB
    assert kept(disk) == []


def test_a_torn_piece_is_read_anew_and_replaced(place: LocalFiles, disk: Path) -> None:
    place.write("a", b"0123456789")
    cached(place, disk).read("a")
    [piece] = kept(disk)
    for torn in (b"", b"12", piece.read_bytes()[:-1], piece.read_bytes()[:-1] + b"x"):
        piece.write_bytes(torn)
        assert cached(place, disk).read("a") == b"0123456789"
        assert piece.read_bytes().endswith(b"0123456789")


def test_what_crashes_left_goes_with_time(far: LocalFiles, disk: Path) -> None:
    (disk / "ab").mkdir(parents=True)
    old, young = disk / "ab/.tmp-old", disk / "ab/.tmp-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cached(far, disk).read("1")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_disk_that_takes_nothing_costs_nothing_but_the_cache(far: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = cached(far, tmp_path / "file/cache")
    assert [len(cache.read("1")) for _ in range(2)] == [MIB, MIB]


def reading(place: Path, disk: Path, *, seed: int, reads: int) -> subprocess.Popen[bytes]:
    program = Path(__file__).parents[1] / "support/cache_reader.py"
    return subprocess.Popen([sys.executable, program, place, disk, str(seed), str(reads)])


@pytest.mark.usefixtures("far")
def test_processes_share_it_and_one_that_is_killed_harms_nobody(tmp_path: Path, disk: Path) -> None:
    place = tmp_path / "place"
    with reading(place, disk, seed=1, reads=10**9) as doomed, reading(place, disk, seed=2, reads=500) as steady:
        eventually(lambda: len(kept(disk)) >= 15, "fifteen pieces")
        doomed.kill()
        assert (doomed.wait(), steady.wait()) == (-signal.SIGKILL, 0)
    assert 15 * 500_000 < kept_bytes(disk) <= 12 * MIB
    with reading(place, disk, seed=3, reads=100) as last:
        assert last.wait() == 0
