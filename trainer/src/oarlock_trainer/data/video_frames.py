"""Which frames of a video are a sample: one for each moment k / fps, the nearest that there is, from the beginning on.

So a sample moves as fast as its video does, whatever the two count a second. The rate of a file is taken as constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from oarlock_api.videos import Video

_ROUNDING = 1e-9
"""A quotient that should be a whole number may be so much above it."""


def available(frames: np.ndarray, rates: np.ndarray, fps: float) -> np.ndarray:
    """(n,) int64: frames of the longest samples of videos with so many `frames` at so many a second; 0 where unknown."""
    known = (frames > 0) & (rates > 0)
    moments = (frames - 0.5) * fps / np.where(known, rates, 1.0)
    return np.asarray(np.where(known, np.ceil(moments - _ROUNDING), 0), dtype=np.int64)


def bucket_frames(available: np.ndarray, video: Video) -> np.ndarray:
    """(n,) int64: frames of the samples' buckets, for videos that have `video.min_frames` at least."""
    cut = (available - 1) // video.frame_interval * video.frame_interval + 1
    return np.asarray(np.minimum(cut, video.frames))


def places(frames: int, rate: float, fps: float) -> np.ndarray:
    """(frames,) int64, rising: the numbers of a sample's frames in a file of `rate` frames a second."""
    return np.asarray(np.floor(np.arange(frames) * (rate / fps) + 0.5 + _ROUNDING), dtype=np.int64)
