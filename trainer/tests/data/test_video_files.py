"""Files of videos: what their headers say, as they are shown, and whose fault it is where they cannot be read."""

from __future__ import annotations

import errno
import io
import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pytest
from PIL import Image
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
        seen = [number_of(float(frame.mean())) for frame in video.sample([0, 1, 7, 19])]
    assert seen == [0, 1, 7, 19]


def test_a_video_that_is_to_be_turned_is_as_it_is_shown(tmp_path: Path) -> None:
    drawn = np.full((8, 48, 64, 3), 20, np.uint8)
    drawn[:, :16, :16] = 230  # upper left in the file, upper right where it is turned clockwise
    write_video(tmp_path / "a.mp4", drawn=drawn)
    turn(tmp_path / "a.mp4")
    assert video_header(files(tmp_path), "a.mp4").size == Size(48, 64)
    with files(tmp_path).open("a.mp4") as file, opened(file) as video:
        (frame,) = video.sample([0])
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


def _png() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (64, 48)).save(content, "png")
    return content.getvalue()


NO_VIDEOS = {
    "nothing": b"",
    "text": b"no video",
    "bytes": bytes(range(256)) * 64,
    "a picture": _png(),
    "a list of files": b"ffconcat version 1.0\nfile other.webm\n",
    "a list of addresses": b"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nother.webm\n#EXT-X-ENDLIST\n",
    "a session": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
    b"a=rtpmap:96 H264/90000\n",
}


@pytest.mark.parametrize("content", NO_VIDEOS.values(), ids=NO_VIDEOS)
def test_what_is_no_video_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(ValueError, match="no video"):
        video_header(files(tmp_path), "a.mp4")


@pytest.mark.parametrize("content", [_png(), NO_VIDEOS["a session"]], ids=["a picture", "a session"])
def test_ffmpeg_itself_opens_no_other_kind_whatever_the_environment_says(content: bytes, tmp_path: Path) -> None:
    """Without this the first would be a video of one frame, and the second would wait for packets."""
    program = (
        "import io, sys; from oarlock_trainer.runtime.opencv import opencv; cv2 = opencv();"
        "capture = cv2.VideoCapture(io.BytesIO(sys.stdin.buffer.read()), cv2.CAP_FFMPEG, []);"
        "sys.exit(capture.isOpened())"
    )
    environment = os.environ | {"OPENCV_FFMPEG_CAPTURE_OPTIONS": "format_whitelist;png_pipe,sdp,rtp"}
    ended = subprocess.run([sys.executable, "-c", program], input=content, env=environment, cwd=tmp_path, check=False)
    assert ended.returncode == 0


def test_frames_larger_than_pictures_may_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "a.mp4", size=(64, 48))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 48)
    assert video_header(files(tmp_path), "a.mp4").size == Size(64, 48)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 48 - 1)
    with pytest.raises(ValueError, match="its frames are of 64 x 48 pixels: more than"):
        video_header(files(tmp_path), "a.mp4")


def test_more_frames_than_the_file_has_bytes_are_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.webm", rate=16.0)
    lasting(path, 1e9)
    with pytest.raises(ValueError, match=r"its header says 16000000 frames, and its file has \d+ bytes"):
        video_header(files(tmp_path), "a.webm")


def test_where_a_file_ends_up_to_a_quarter_second_early_its_last_frame_stands_for_the_rest(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.webm", frames=20, rate=16.0)
    lasting(path, 24 / 16 * 1000)
    assert video_header(files(tmp_path), "a.webm").frames == 24
    with files(tmp_path).open("a.webm") as file, opened(file) as video:
        seen = [number_of(float(frame.mean())) for frame in video.sample(range(24))]
    assert seen == [*range(20), 19, 19, 19, 19]


def test_where_it_ends_earlier_it_is_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.webm", frames=20, rate=16.0)
    lasting(path, 25 / 16 * 1000)
    with (
        files(tmp_path).open("a.webm") as file,
        opened(file) as video,
        pytest.raises(ValueError, match="it ends after 20 frames; its sample needs 25"),
    ):
        list(video.sample(range(25)))


def lasting(path: Path, milliseconds: float) -> None:
    """Let a .webm say that it lasts so long."""
    body = bytearray(path.read_bytes())
    place = body.index(b"\x44\x89\x88") + 3
    body[place : place + 8] = struct.pack(">d", milliseconds)
    path.write_bytes(body)


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
        list(video.sample(range(20)))


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
        assert [number_of(float(frame.mean())) for frame in video.sample([19])] == [19]
    assert len(asked) <= 4
