"""Videos -> the pixels of their samples: frame by frame, each scaled and cut as a picture is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.data.video_files import opened, resized
from oarlock_trainer.data.video_frames import places
from oarlock_trainer.preprocess.shapes import check_size

if TYPE_CHECKING:
    from oarlock_api.videos import Video
    from oarlock_trainer.data.buckets import Cut
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.storage.files import Files

_RGB = 3


def decode_video(source: Files, picture: Picture, cut: Cut, video: Video) -> np.ndarray:
    """A video's pixels as they are trained: (F, H, W, 3) uint8 of its bucket; mirrored where the picture says so.

    Of the file no more is read than FFmpeg asks for, and beside the sample one frame is held. Raises what the storage raises,
    OtherSizeError where the table says another size, and ValueError where it is damaged or ends too early.
    """
    target = cut.target
    pixels = np.empty((picture.frames, target.height, target.width, _RGB), dtype=np.uint8)
    with source.open(picture.file) as file, opened(file) as found:
        check_size(found.header.size.width, found.header.size.height, picture.size)
        wanted = places(picture.frames, found.header.rate, video.fps).tolist()
        for number, place in enumerate(wanted):
            if number and place == wanted[number - 1]:  # one frame is the nearest of several moments
                pixels[number] = pixels[number - 1]
                continue
            scaled = resized(found.frame(place), cut.scaled)
            kept = scaled[cut.top : cut.top + target.height, cut.left : cut.left + target.width, ::-1]
            pixels[number] = kept[:, ::-1] if picture.mirrored else kept
    return pixels
