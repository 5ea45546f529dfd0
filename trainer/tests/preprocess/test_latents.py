"""Pictures on their way to latents: what is damaged, and what the storage does to them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, cast

import pytest
from PIL import Image

from oarlock_api.data import Compression
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.data.metadata.discovery import header
from oarlock_trainer.data.metadata.table import Picture
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.preprocess.latents import Task, encode_pictures
from oarlock_trainer.preprocess.pictures import decode
from oarlock_trainer.preprocess.storing import Storing
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.models.encoders import PictureEncoder

CUT = Cut(scaled=Size(64, 64), left=0, top=0, target=Size(64, 64))


class Unsteady(LocalFiles):
    """A mount whose reads time out."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        del name, start, length
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def nothing() -> None:
    """Go on."""


def rejected(source: LocalFiles, size: Size = CUT.scaled) -> list[Rejected]:
    """What becomes of a.png. No picture here reaches the encoder."""
    picture = Picture(
        dataset="photos", name="a.png", width=size.width, height=size.height, target_width=64, target_height=64,
        captions=("a",), image_key=b"k" * 16, text_keys=(b"t" * 16,),
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
    assert one.reason == "unreadable: it is no picture of a kind that is known here"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_a_turned_picture_has_the_size_that_discovery_saw(tmp_path: Path, suffix: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (30, 20), "teal").save(tmp_path / f"a.{suffix}", exif=exif)
    files = LocalFiles(tmp_path, field="source")
    assert decode(files.read(f"a.{suffix}"), CUT, header(files, f"a.{suffix}")).shape == (64, 64, 3)


def test_a_picture_that_a_table_gives_its_stored_size_is_rejected_and_not_stretched(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 200), "teal").save(tmp_path / "a.png", exif=exif)
    (one,) = rejected(LocalFiles(tmp_path, field="source"), Size(400, 200))
    assert one.kind == "of another size"
    assert one.reason == "not the size that the table says: 200 x 400 as it is shown, there 400 x 200"


def test_a_mount_that_times_out_rejects_no_picture_but_ends_the_attempt(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"reading a.png in {tmp_path}: .*timed out"):
        rejected(Unsteady(tmp_path, field="source"))
