"""Frames -> a video file that browsers play: VP9 in WebM, which needs no licence and no network."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image


def webm(frames: Sequence[Image.Image], *, fps: int) -> bytes:
    """RGB, all of one size -> the file. Raises OSError where the library cannot write it."""
    import cv2  # noqa: PLC0415 - of the families, few draw videos

    width, height = frames[0].size
    with TemporaryDirectory() as folder:  # the library writes to a path alone, and knows the kind of file by its ending
        path = Path(folder) / "video.webm"
        writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"VP90"), fps, (width, height))
        if not writer.isOpened():
            raise OSError("OpenCV has no encoder for VP9 here, or the disk for temporary files is full")
        for frame in frames:
            writer.write(np.ascontiguousarray(np.asarray(frame)[:, :, ::-1]))  # blue comes first there
        writer.release()
        return path.read_bytes()
