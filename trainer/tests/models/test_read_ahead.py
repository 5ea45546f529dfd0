"""One rank of a node reads weights into the page cache ahead of all; no memory is taken for it that others need."""

from __future__ import annotations

import ctypes
import mmap
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Model, ModelFamily
from oarlock_trainer.loop import trained_model
from oarlock_trainer.models import read_ahead, transformer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from threading import Thread

MIB = 1 << 20


def cached(path: Path) -> int:
    """Bytes of a file that are in the page cache."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages
        )
        del first
        assert not failed
        return sum(page & 1 for page in pages.raw) * mmap.PAGESIZE


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of 40 and 3 MiB, of which nothing is in memory."""
    made = []
    for name, size in (("a", 40 * MIB), ("b", 3 * MIB)):
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(os.urandom(MIB) * (size // MIB))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        made.append(path)
    if sum(map(cached, made)):
        pytest.skip("this file system keeps all files in memory")
    return made


def ended(threads: list[Thread]) -> None:
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_all_of_every_file_comes_into_memory(files: list[Path]) -> None:
    with read_ahead.read_ahead(files, room=10**9) as threads:
        ended(threads)
    # A machine that is short of memory may have dropped a page since.
    assert all(cached(path) > 0.95 * path.stat().st_size for path in files)


def test_no_more_is_read_than_there_is_room_for(files: list[Path]) -> None:
    with read_ahead.read_ahead(files, room=8 * MIB) as threads:
        ended(threads)
    assert 4 * MIB < sum(map(cached, files)) < 20 * MIB  # the kernel reads a little ahead, too
    with read_ahead.read_ahead(files[1:], room=0) as threads:
        ended(threads)
    assert cached(files[1]) < 3 * MIB


def test_nobody_waits_for_a_file_that_does_not_answer_and_one_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    os.mkfifo(silent)
    with read_ahead.read_ahead([silent], room=10**9) as threads:
        assert all(thread.is_alive() for thread in threads)
    answered = os.open(silent, os.O_RDWR | os.O_NONBLOCK)  # held: one of them may only now be about to open it
    ended(threads)
    os.close(answered)
    with read_ahead.read_ahead([tmp_path / "absent", tmp_path], room=10**9) as threads:
        ended(threads)


@pytest.mark.parametrize(
    ("available", "limit", "used", "wanted"),
    [
        ("MemAvailable: 4096 kB\n", None, "0", 2 * MIB),
        ("MemAvailable: 4096 kB\n", "max", "0", 2 * MIB),
        ("MemAvailable: 4096 kB\n", str(3 * MIB), str(MIB), MIB),
        ("MemAvailable: 4096 kB\n", str(MIB), str(2 * MIB), 0),
        ("MemFree: 4096 kB\n", None, "0", 0),
    ],
)
def test_half_of_what_node_and_container_have_free_is_room(
    tmp_path: Path, available: str, limit: str | None, used: str, wanted: int
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 8192 kB\n{available}")
    (tmp_path / "memory.current").write_text(used)
    if limit:
        (tmp_path / "memory.max").write_text(limit)
    assert read_ahead.room(tmp_path / "meminfo", tmp_path) == wanted


@pytest.mark.parametrize(
    ("rank", "local_rank", "sharded", "reads_ahead"),
    [(0, 0, False, True), (1, 1, False, False), (8, 0, False, True), (0, 0, True, True), (8, 0, True, False)],
)
def test_one_rank_of_each_node_that_reads_weights_reads_ahead(
    tiny_flux: Path, monkeypatch: pytest.MonkeyPatch, *, rank: int, local_rank: int, sharded: bool, reads_ahead: bool
) -> None:
    asked: list[Path] = []
    begin: Callable[..., Any] = read_ahead.read_ahead

    def noted(files: list[Path], *, room: int) -> Any:
        asked.extend(files)
        return begin(files, room=room)

    monkeypatch.setattr(transformer, "read_ahead", noted)
    monkeypatch.setattr(trained_model, "adapters_of", lambda _job: None)
    monkeypatch.setattr(trained_model, "initial_weights", lambda _job: None)
    monkeypatch.setattr(trained_model, "model_folder", lambda _job: tiny_flux)
    setup: Any = SimpleNamespace(
        job=SimpleNamespace(
            rank_info=SimpleNamespace(local_rank=local_rank, is_leader=rank == 0),
            training=SimpleNamespace(model=Model(family=ModelFamily.FLUX1, path=str(tiny_flux))),
        ),
        ranks=SimpleNamespace(device="cpu"),
        resumed=None,
    )
    trained_model.load_model(setup, (lambda _parameter: None) if sharded else None)
    assert asked == (sorted((tiny_flux / "transformer").glob("*.safetensors")) if reads_ahead else [])
