"""Videos -> the pixels of their samples: frame by frame, each scaled and cut as a picture is."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.video_files import opened, resized
from oarlock_trainer.data.video_frames import places
from oarlock_trainer.preprocess.shapes import check_size

if TYPE_CHECKING:
    from threading import Event

    from oarlock_api.videos import Video
    from oarlock_trainer.data.buckets import Cut
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.storage.files import Files

_RGB = 3


def decode_video(source: Files, picture: Picture, cut: Cut, video: Video, stop: Event) -> np.ndarray:
    """A video's pixels as they are trained: (F, H, W, 3) uint8 of its bucket; mirrored where the picture says so.

    Of the file no more is read than FFmpeg asks for; beside the sample a few of its frames are held. Raises what the storage
    raises, OtherSizeError where the table says another size, ValueError where it is damaged or ends too early, and
    CancelledError once `stop` is set.
    """
    target = cut.target
    pixels = np.empty((picture.frames, target.height, target.width, _RGB), dtype=np.uint8)
    with source.open(picture.file) as file, opened(file) as found:
        check_size(found.header.size.width, found.header.size.height, picture.size)
        wanted = places(picture.frames, found.header.rate, video.fps).tolist()
        before: np.ndarray | None = None
        for number, frame in enumerate(found.sample(wanted)):
            if stop.is_set():
                raise CancelledError
            if frame is before:  # it is the nearest of several moments
                pixels[number] = pixels[number - 1]
                continue
            before, scaled = frame, resized(frame, cut.scaled)
            kept = scaled[cut.top : cut.top + target.height, cut.left : cut.left + target.width, ::-1]
            pixels[number] = kept[:, ::-1] if picture.mirrored else kept
    return pixels
