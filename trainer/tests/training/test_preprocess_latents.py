"""Pictures on their way to latents: what is damaged, and what the storage does to them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, cast

import pytest

from oarlock_api.data import Compression
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.data.metadata.table import Picture
from oarlock_trainer.errors import StorageError
from oarlock_trainer.preprocess.latents import Task, encode_pictures
from oarlock_trainer.preprocess.progress import Progress
from oarlock_trainer.preprocess.storing import Storing
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.models.flux.encode import PictureEncoder

CUT = Cut(scaled=Size(64, 64), left=0, top=0, target=Size(64, 64))


class Unsteady(LocalFiles):
    """A mount whose reads time out."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        del name, start, length
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def nothing() -> None:
    """Go on."""


def rejected(source: LocalFiles) -> list[Rejected]:
    """What becomes of a.png. No picture here reaches the encoder."""
    picture = Picture(
        dataset="photos", name="a.png", width=64, height=64, target_width=64, target_height=64, captions=("a",),
        image_key=b"k" * 16, text_keys=(b"t" * 16,),
    )  # fmt: skip
    found = encode_pictures(
        [Task(row=0, picture=picture, source=source, cut=CUT, unit=0, store=source)],
        cast("PictureEncoder", None),
        Storing(Compression.NONE, threads=1, go_on=nothing),
        batch_size=1,
        threads=1,
        progress=Progress("latents", own=1, total=1, speaks=False),
        go_on=nothing,
    )
    return [one for _, one in found]


def test_a_damaged_picture_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    (one,) = rejected(LocalFiles(tmp_path, field="source"))
    assert (one.name, one.kind) == ("a.png", "unreadable")


def test_a_mount_that_times_out_rejects_no_picture_but_ends_the_attempt(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"reading a.png in {tmp_path}: .*timed out"):
        rejected(Unsteady(tmp_path, field="source"))
