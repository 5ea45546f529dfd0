"""Videos: the block `video` of an entry of dataset_type video."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from oarlock_api.weights import VIDEO_FAMILIES, VIDEO_FPS, VIDEO_INTERVAL
from oarlock_import.options import Options
from oarlock_import.rows import table
from oarlock_import.tables.dataset import VIDEO

if TYPE_CHECKING:
    from oarlock_import.draft import Draft

TYPE = "video"
"""Of the entries that have them."""
_ROWS = table(*VIDEO)
_BY_TIME = f"frames are taken by time, {VIDEO_FPS} a second; SimpleTuner takes each frame of a file"
_CUT = "longer videos are cut to it; SimpleTuner leaves them out"


def place(dataset: Options, draft: Draft, *, is_video: bool, family: str | None) -> None:
    """Write `video` of a data set; `family` is the job's, if it has one."""
    if not is_video:
        dataset.ignored("video", f"belongs to entries of dataset_type {TYPE}")
        return
    if family is not None and family not in VIDEO_FAMILIES:
        dataset.refused("video", "videos are for models of videos: set model_family to wan, or leave the entry out")
        return
    given = dataset.value("video") or {}
    if not isinstance(given, dict):
        dataset.refused("video", "has to be a block, such as {num_frames: 81}")
        return
    block = Options(f"{dataset.source}[video]", given, rows=_ROWS, report=dataset.report)
    if "video" in dataset:
        dataset.mapped("video", words="see its keys")
    by_length = block.value("bucket_strategy") == "resolution_frames"
    block.mapped("bucket_strategy", words="-> video.minFrames and video.frameInterval")
    if by_length and "num_frames" not in block:
        _lengths(block, draft)
    else:
        _cut_to_one(block, draft)
    block.settle(draft)


def _cut_to_one(block: Options, draft: Draft) -> None:
    """What SimpleTuner cuts to num_frames; shorter ones that min_frames lets in have buckets of their own."""
    frames = _down(block.value("num_frames"), VIDEO_INTERVAL)
    block.carry(draft, "num_frames", to="video.frames", value=frames, differs=_BY_TIME)
    asked = block.value("min_frames") if "min_frames" in block else frames
    shortest = min(_up(asked, VIDEO_INTERVAL), frames)
    interval = gcd(frames - 1, shortest - 1) or VIDEO_INTERVAL
    draft.put("video.minFrames", shortest)
    draft.put("video.frameInterval", interval)
    if "min_frames" in block:
        block.mapped("min_frames", words=f"-> video.minFrames: {shortest}, video.frameInterval: {interval}")
    block.ignored("frame_interval", "num_frames says how long a sample is")
    block.ignored("max_frames", _CUT)


def _lengths(block: Options, draft: Draft) -> None:
    """Buckets of several lengths."""
    if "max_frames" not in block or "min_frames" not in block:
        block.refused("max_frames", "has to be set, and min_frames: the longest and the shortest bucket")
        return
    interval = max(-(-block.value("frame_interval") // VIDEO_INTERVAL) * VIDEO_INTERVAL, VIDEO_INTERVAL)
    longest = _down(block.value("max_frames"), interval)
    shortest = min(_up(block.value("min_frames"), interval), longest)
    block.carry(draft, "frame_interval", value=interval)
    block.carry(draft, "max_frames", value=longest, differs=f"{_CUT}; {_BY_TIME}")
    block.carry(draft, "min_frames", value=shortest)


def _down(frames: int, interval: int) -> int:
    """The most that is 1 + a multiple of the interval, and no more than `frames`."""
    return max(frames - 1, 0) // interval * interval + 1


def _up(frames: int, interval: int) -> int:
    """The fewest that is 1 + a multiple of the interval, and no fewer than `frames`."""
    return -(-(frames - 1) // interval) * interval + 1
