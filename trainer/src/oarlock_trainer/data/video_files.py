"""Files of videos, read with OpenCV: what their headers say, and their frames one after another.

Its FFmpeg reads by a Python object. What that object raises would end the process, and an offset reaches it as 32 bits: so
errors are kept for later, and files of 4 GiB are refused.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from oarlock_trainer.data.buckets import Size
from oarlock_trainer.runtime.opencv import opencv

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    import numpy as np

    from oarlock_trainer.storage.files import Files

_MOST_BYTES = 1 << 32
_HEAD = 256 << 10
_AHEAD = 4 << 20
"""Bytes that are read at once of a header, which may stand at the end, and of frames: FFmpeg asks for 4 KiB at a time."""
_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"})
"""That a file of .mp4's kind may begin with."""
_EBML = b"\x1aE\xdf\xa3"
_NO_VIDEO = "it is no video, or a damaged one"
_MISSING_SECONDS = 0.25
"""That a file may end before its sample does. A header often counts a few frames more than there are: it tells how long the
sound is, or what an edit list leaves out."""


@dataclass(frozen=True, slots=True)
class VideoHeader:
    """Size as it is shown, `frames` in all, and how many of them a second."""

    size: Size
    frames: int
    rate: float


class OpenVideo:
    """A video whose frames come as they are shown: where its file says that it is turned, they are."""

    def __init__(self, capture: Any, *, size: int) -> None:
        """Takes a cv2.VideoCapture of a file of so many bytes.

        Raises ValueError where that has found no video, or one whose header says too little, or more than can be.
        """
        if not capture.isOpened():
            raise ValueError(_NO_VIDEO)
        self._capture, self._at = capture, -1
        cv2 = opencv()
        width, height = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        frames, rate = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), float(capture.get(cv2.CAP_PROP_FPS))
        if min(width, height) <= 0:
            raise ValueError("its header says no width and height")
        if (most := Image.MAX_IMAGE_PIXELS) and width * height > most:
            raise ValueError(f"its frames are of {width} x {height} pixels: more than {most / 1e6:.0f} million")
        if frames <= 0 or not 0.0 < rate < float("inf"):
            raise ValueError(
                "its header does not say how long it is: write it anew, as by ffmpeg -i old.webm -c copy new.webm"
            )
        if frames > size:
            raise ValueError(f"its header says {frames} frames, and its file has {size} bytes")
        self.header = VideoHeader(Size(width, height), frames, rate)

    def sample(self, places: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames (H, W, 3) uint8, blue first, at places that rise; for a place that comes again the same array.

        Where the file ends at most a quarter of a second before the last place, the frame before stands for the rest.
        Raises ValueError where it ends earlier, and where a frame cannot be decoded.
        """
        frame: np.ndarray | None = None
        for number, place in enumerate(places):
            if number == 0 or place != places[number - 1]:
                frame = self._frame(place) if self._reach(place) else frame
            if frame is None or (self._at < place and places[-1] - self._at > _MISSING_SECONDS * self.header.rate):
                raise ValueError(f"it ends after {self._at + 1} frames; its sample needs {places[-1] + 1}")
            yield frame

    def _reach(self, place: int) -> bool:
        while self._at < place:
            if not self._capture.grab():
                return False
            self._at += 1
        return True

    def _frame(self, place: int) -> np.ndarray:
        there, frame = self._capture.retrieve()
        if not there:
            raise ValueError(f"its frame {place} cannot be decoded")
        found: np.ndarray = frame
        return found


def video_header(files: Files, name: str) -> VideoHeader:
    """Raises what quarantine.UNREADABLE lists where a file is no video, or does not say how long it is."""
    with files.open(name) as file, opened(file, ahead=_HEAD) as video:
        return video.header


@contextmanager
def opened(file: BinaryIO, *, ahead: int = _AHEAD) -> Iterator[OpenVideo]:
    """The video in an open file, of which so many bytes are read at once.

    Raises ValueError where it is none or damaged, and what reading the file raised, whatever FFmpeg made of that.
    """
    cv2 = opencv()
    stream = _Stream(file, ahead)
    # Storage that stands still for a minute is no damaged file, so nothing times out.
    settings = [cv2.CAP_PROP_N_THREADS, 1, cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, 0, cv2.CAP_PROP_READ_TIMEOUT_MSEC, 0]
    try:
        capture = cv2.VideoCapture(stream, cv2.CAP_FFMPEG, settings)
        try:
            yield OpenVideo(capture, size=stream.size)
        finally:
            capture.release()
    except (cv2.error, ValueError) as error:
        if stream.error:
            raise stream.error from error
        if isinstance(error, ValueError):
            raise
        raise ValueError(f"it cannot be decoded: {error}") from error
    if stream.error:
        raise stream.error


def resized(frame: np.ndarray, size: Size) -> np.ndarray:
    """(H, W, 3) uint8 in another size: by areas where it shrinks, else by Lanczos."""
    if frame.shape[:2] == (size.height, size.width):
        return frame
    cv2 = opencv()
    way = cv2.INTER_AREA if size.width < frame.shape[1] else cv2.INTER_LANCZOS4
    found: np.ndarray = cv2.resize(frame, (size.width, size.height), interpolation=way)
    return found


class _Stream(io.BufferedIOBase):
    """A file for FFmpeg. `error` is what reading it raised first; for FFmpeg the file ends there."""

    def __init__(self, file: BinaryIO, ahead: int) -> None:
        """Raises ValueError where the file is too large or of no kind that is read, and what the file raises."""
        self.error: BaseException | None = None
        self._file = io.BufferedReader(_Raw(file), ahead)
        self.size = self._file.seek(0, io.SEEK_END)
        if self.size >= _MOST_BYTES:
            raise ValueError("it has 4 GiB or more: cut it into shorter ones")
        self._file.seek(0)
        begin = self._file.read(12)
        self._file.seek(0)
        if not (begin[4:8] in _BOXES or begin[:4] == _EBML or (begin[:4], begin[8:]) == (b"RIFF", b"AVI ")):
            raise ValueError(_NO_VIDEO)

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            return b"" if self.error else self._file.read(size)
        except BaseException as error:  # noqa: BLE001 - raised again by `opened`
            self.error = self.error or error
            return b""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        try:
            return self._file.seek(offset % _MOST_BYTES if whence == io.SEEK_SET else offset, whence)
        except BaseException as error:  # noqa: BLE001 - raised again by `opened`
            self.error = self.error or error
            return -1


class _Raw(io.RawIOBase):
    """Any file as one that can be buffered; it stays the caller's to close."""

    def __init__(self, file: BinaryIO) -> None:
        self._source = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: Any, /) -> int:
        content = self._source.read(len(target))
        target[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        return self._source.tell()
