"""Videos: the block `video` of an entry of dataset_type video."""

from __future__ import annotations

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
        _one_length(block, draft)
    block.settle(draft)


def _one_length(block: Options, draft: Draft) -> None:
    """One bucket of frames, as SimpleTuner cuts all videos to num_frames."""
    frames = _down(block.value("num_frames"), VIDEO_INTERVAL)
    block.carry(draft, "num_frames", to="video.frames", value=frames, differs=_BY_TIME)
    draft.put("video.minFrames", frames)
    draft.put("video.frameInterval", max(frames - 1, VIDEO_INTERVAL))
    if "min_frames" in block:
        block.mapped("min_frames", words=f"-> video.minFrames: {frames}, so that there is one length")
    block.ignored("frame_interval", "there is one length")
    block.ignored("max_frames", _CUT)


def _lengths(block: Options, draft: Draft) -> None:
    """Buckets of several lengths."""
    if "max_frames" not in block or "min_frames" not in block:
        block.refused("max_frames", "has to be set, and min_frames: the longest and the shortest bucket")
        return
    interval = max(-(-block.value("frame_interval") // VIDEO_INTERVAL) * VIDEO_INTERVAL, VIDEO_INTERVAL)
    longest = _down(block.value("max_frames"), interval)
    shortest = min(-(-(block.value("min_frames") - 1) // interval) * interval + 1, longest)
    block.carry(draft, "frame_interval", value=interval)
    block.carry(draft, "max_frames", value=longest, differs=f"{_CUT}; {_BY_TIME}")
    block.carry(draft, "min_frames", value=shortest)


def _down(frames: int, interval: int) -> int:
    """The most that is 1 + a multiple of the interval, and no more than `frames`."""
    return max(frames - 1, 0) // interval * interval + 1
