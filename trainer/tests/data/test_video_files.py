"""Files of videos: what their headers say, as they are shown, and whose fault it is where they cannot be read."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pytest
from videos import grey, number_of, turn, write_video

from oarlock_trainer.data import video_files
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.video_files import VideoHeader, opened, video_header
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.storage.ranged_file import ranged_file

if TYPE_CHECKING:
    from pathlib import Path


class Watched(LocalFiles):
    """Counts the bytes that are read, and fails after so many."""

    def __init__(self, folder: Path, *, fails_after: int | None = None) -> None:
        super().__init__(folder, field="source")
        self.fails_after, self.bytes = fails_after, 0

    def open(self, name: str) -> BinaryIO:
        watched = self

        class File(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                if watched.fails_after is not None and watched.bytes >= watched.fails_after:
                    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                found = super().read(size)
                watched.bytes += len(found)
                return found

        with super().open(name) as file:
            return File(file.read())


def files(folder: Path) -> LocalFiles:
    return LocalFiles(folder, field="source")


@pytest.mark.parametrize("name", ["a.webm", "a.mp4", "a.mov", "a.avi", "a.mkv"])
def test_a_header_says_size_frames_and_rate(tmp_path: Path, name: str) -> None:
    write_video(tmp_path / name, frames=20, size=(64, 48), rate=24.0)
    assert video_header(files(tmp_path), name) == VideoHeader(Size(64, 48), 20, 24.0)


@pytest.mark.parametrize("name", ["a.webm", "a.mp4", "a.avi"])
def test_frames_come_in_order_and_some_may_be_passed_over(tmp_path: Path, name: str) -> None:
    write_video(tmp_path / name, frames=20)
    with files(tmp_path).open(name) as file, opened(file) as video:
        seen = [number_of(float(video.frame(place).mean())) for place in (0, 1, 7, 19)]
    assert seen == [0, 1, 7, 19]


def test_a_video_that_is_to_be_turned_is_as_it_is_shown(tmp_path: Path) -> None:
    drawn = np.full((8, 48, 64, 3), 20, np.uint8)
    drawn[:, :16, :16] = 230  # upper left in the file, upper right where it is turned clockwise
    write_video(tmp_path / "a.mp4", drawn=drawn)
    turn(tmp_path / "a.mp4")
    assert video_header(files(tmp_path), "a.mp4").size == Size(48, 64)
    with files(tmp_path).open("a.mp4") as file, opened(file) as video:
        frame = video.frame(0)
    assert frame.shape == (64, 48, 3)
    assert frame[4:12, 36:44].mean() > 200
    assert frame[4:12, 4:12].mean() < 50


def test_of_a_header_at_the_end_little_more_is_read(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (150, 240, 320, 3), dtype=np.uint8)
    path = write_video(tmp_path / "a.mp4", size=(320, 240), drawn=noise)
    assert path.read_bytes().index(b"moov") > path.stat().st_size // 2
    watched = Watched(tmp_path)
    assert video_header(watched, "a.mp4").frames == 150
    assert watched.bytes < path.stat().st_size // 4


def test_a_header_beyond_two_gigabytes_is_found(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4")
    body = path.read_bytes()
    start = body.index(b"moov") - 4
    with path.open("wb") as file:
        file.write(body[:start] + (3 << 30).to_bytes(4, "big") + b"free")
        file.seek((3 << 30) - 8, io.SEEK_CUR)  # which takes no room
        file.write(body[start:])
    assert video_header(files(tmp_path), "a.mp4").frames == 20


def test_a_file_that_offsets_do_not_reach_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.mp4").open("wb") as file:
        file.truncate(1 << 32)
    with pytest.raises(ValueError, match="4 GiB or more: cut it"):
        video_header(files(tmp_path), "a.mp4")


@pytest.mark.parametrize("content", [b"", b"no video", bytes(range(256)) * 64])
def test_what_is_no_video_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(ValueError, match="no video"):
        video_header(files(tmp_path), "a.mp4")


def test_a_video_that_does_not_say_its_length_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.webm")
    body = bytearray(path.read_bytes())
    body[body.index(b"\x44\x89\x88") : body.index(b"\x44\x89\x88") + 2] = (
        b"\xec\x89"  # its duration is of no meaning now
    )
    path.write_bytes(body)
    with pytest.raises(ValueError, match=r"does not say how long it is: write it anew, as by ffmpeg"):
        video_header(files(tmp_path), "a.webm")


def test_a_video_that_ends_before_its_header_says_so(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.webm", frames=20)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with (
        files(tmp_path).open("a.webm") as file,
        opened(file) as video,
        pytest.raises(ValueError, match=r"it ends after \d+ frames; its sample needs 20"),
    ):
        video.frame(19)


@pytest.mark.parametrize("fails_after", [0, 1])
def test_a_mount_that_times_out_is_no_damaged_video(tmp_path: Path, fails_after: int) -> None:
    write_video(tmp_path / "a.mp4")
    with pytest.raises(OSError, match="timed out") as raised:
        video_header(Watched(tmp_path, fails_after=fails_after), "a.mp4")
    assert raised.value.errno == errno.ETIMEDOUT


def test_frames_shrink_by_areas_and_grow_smoothly() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200
    assert (video_files.resized(stripes, Size(32, 32)) == 100).all()
    assert video_files.resized(stripes, Size(64, 64)) is stripes
    assert (
        video_files.resized(np.full((8, 8, 3), grey(3), np.uint8), Size(32, 16)).tolist() == [[[grey(3)] * 3] * 32] * 16
    )


def test_a_video_of_a_bucket_is_read_by_few_ranges(tmp_path: Path) -> None:
    body = write_video(tmp_path / "a.mp4").read_bytes()
    asked: list[tuple[int, int]] = []

    def read(start: int, length: int) -> bytes:
        asked.append((start, length))
        return body[start : start + length]

    with ranged_file(len(body), read) as file, opened(file) as video:
        assert number_of(float(video.frame(19).mean())) == 19
    assert len(asked) <= 4
