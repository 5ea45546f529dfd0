"""Which ending is a lost peer, and which the storage's fault."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from oarlock_trainer.runtime.errors import StorageError, failed_reading, lost_a_peer, lost_storage, storage

if TYPE_CHECKING:
    from pathlib import Path


class DistBackendError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.1.0.7]:29"),
        RuntimeError("[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 20000ms for recv operation"),
        DistBackendError("NCCL error: remote process exited or there was a network error"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)  # fmt: skip
def test_a_collective_without_its_other_side_is_a_lost_peer(error: Exception) -> None:
    assert lost_a_peer(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("gloo timed out"),
        ValueError("timed out"),
    ],
)
def test_anything_else_is_not(error: Exception) -> None:
    assert not lost_a_peer(error)


def test_a_full_disk_is_the_storages_fault_and_says_what_was_done() -> None:
    with pytest.raises(StorageError, match=r"saving step 3.*No space left"), storage("saving step 3"):
        raise OSError(28, "No space left on device")


def test_torchs_words_for_a_full_disk_are_known() -> None:
    with pytest.raises(StorageError), storage("saving"):
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")


def test_a_full_disk_that_nobody_expected_is_the_storages_fault_and_a_missing_file_is_not() -> None:
    assert lost_storage(OSError(28, "No space left on device"))
    assert not lost_storage(FileNotFoundError(2, "No such file or directory"))


@pytest.mark.parametrize(
    "number",
    [
        errno.ETIMEDOUT, errno.EREMOTEIO, errno.EHOSTDOWN, errno.ECONNRESET, errno.EMFILE, errno.ENOMEM, errno.EAGAIN,
        errno.EIO, errno.ESTALE, errno.EACCES,
    ],
)  # fmt: skip
def test_what_fails_while_a_file_is_read_is_the_storages_fault(number: int) -> None:
    assert failed_reading(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("name", ["gone.png", "file/below.png", "folder", "n" * 300, "loop"])
def test_a_name_that_leads_to_no_file_is_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=name[:5]) as failed:
        (tmp_path / name).read_bytes()
    assert not failed_reading(failed.value)


def test_a_damaged_file_is_not(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot identify") as failed:
        Image.open(io.BytesIO(b"no picture"))
    assert not failed_reading(failed.value)
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as file, pytest.raises(OSError, match="Invalid argument") as failed:
        file.seek(-1)
    assert not failed_reading(failed.value)
