"""Frames -> a video file that browsers play: VP9 in WebM, which needs no licence and no network."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.runtime.opencv import opencv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from PIL import Image


def webm(frames: Sequence[Image.Image], *, fps: int, go_on: Callable[[], None]) -> bytes:
    """RGB, all of one size -> the file. `go_on` is called for each frame, and may raise to stop.

    Raises OSError where the file cannot be written: the library says nothing of a full disk, so the file is read again.
    """
    cv2 = opencv()
    with TemporaryDirectory() as folder:  # the library writes to a path alone, and knows the kind of file by its ending
        path = Path(folder) / "video.webm"
        code = cv2.VideoWriter.fourcc(*"VP90")
        writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, code, fps, frames[0].size)
        if not writer.isOpened():
            raise OSError("OpenCV has no encoder for VP9 here, or the disk for temporary files is full")
        try:
            for frame in frames:
                go_on()
                writer.write(np.ascontiguousarray(np.asarray(frame)[:, :, ::-1]))  # blue comes first there
        finally:
            writer.release()
        content = path.read_bytes()
    if (whole := _count(content, go_on)) != len(frames):
        raise OSError(f"{whole} of its {len(frames)} frames are in the file: the disk for temporary files is full")
    return content


def _count(content: bytes, go_on: Callable[[], None]) -> int:
    """How many frames of a file can be decoded."""
    cv2, found = opencv(), 0
    stream = io.BytesIO(content)  # held until after the release, which would otherwise free it without Python's lock
    video = cv2.VideoCapture(stream, cv2.CAP_FFMPEG, [])
    try:
        while video.grab():
            go_on()
            found += 1
    finally:
        video.release()
    return found
