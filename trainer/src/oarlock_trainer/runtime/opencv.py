"""OpenCV as all of ours use it: only where a job has videos, quiet, without threads of its own, for three kinds of file."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

_FORMATS = "mov,matroska,avi"
"""FFmpeg's names of .mp4, .mov and .m4v, of .mkv and .webm, and of .avi.

It goes by what is in a file, not by the ending: a list of other files or of addresses would be followed.
"""


@cache
def opencv() -> Any:
    """The module cv2, which reads no other formats from then on, whatever the environment said before."""
    os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] = f"format_whitelist;{_FORMATS}"
    # Of many fine videos FFmpeg tells something, never with a name. Whoever wants to hear it sets 16 (errors) or more.
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    import cv2  # noqa: PLC0415 - seldom needed

    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2
