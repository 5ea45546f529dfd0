"""Data sets of videos: the frames of a sample, and how many lengths there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def clips(imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]) -> Callable[..., Imported]:
    """A job of Wan with one data set of videos."""
    wan = simple | {
        "model_family": "wan",
        "model_flavour": "t2v-480p-1.3b-2.1",
        "pretrained_model_name_or_path": "/output/models/Wan2.1-T2V-1.3B-Diffusers",
    }

    def call(video: dict[str, Any] | None, **changed: Any) -> Imported:
        return imported(wan, folder | {"dataset_type": "video", "video": video} | changed)

    return call


@pytest.mark.parametrize(
    ("video", "taken"),
    [
        ({"num_frames": 81, "min_frames": 81}, {"frames": 81, "minFrames": 81, "frameInterval": 80}),
        ({"num_frames": 75, "min_frames": 75}, {"frames": 73, "minFrames": 73, "frameInterval": 72}),
        ({"num_frames": 33, "bucket_strategy": "resolution_frames", "frame_interval": 8},
         {"frames": 33, "minFrames": 33, "frameInterval": 32}),
        ({"num_frames": 75, "min_frames": 17}, {"frames": 73, "minFrames": 17, "frameInterval": 8}),
        ({"num_frames": 81, "min_frames": 10, "bucket_strategy": "resolution_frames", "frame_interval": 16},
         {"frames": 81, "minFrames": 13, "frameInterval": 4}),
        ({"num_frames": 1}, {"frames": 1, "minFrames": 1, "frameInterval": 4}),
        (None, {"frames": 125, "minFrames": 125, "frameInterval": 124}),
        ({"bucket_strategy": "resolution_frames", "frame_interval": 16, "min_frames": 17, "max_frames": 90},
         {"frames": 81, "minFrames": 17, "frameInterval": 16}),
        ({"bucket_strategy": "resolution_frames", "frame_interval": 25, "min_frames": 25, "max_frames": 250},
         {"frames": 225, "minFrames": 29, "frameInterval": 28}),
        ({"bucket_strategy": "resolution_frames", "min_frames": 60, "max_frames": 61},
         {"frames": 61, "minFrames": 61, "frameInterval": 4}),
    ],
)  # fmt: skip
def test_frames_are_cut_to_what_latents_are_made_of(
    video: dict[str, Any] | None, taken: dict[str, int], clips: Callable[..., Imported]
) -> None:
    job = clips(video)
    assert job.spec["training"]["data"]["datasets"][0]["video"] == taken
    assert job.job.spec.training is not None


def test_that_frames_are_taken_by_time_is_told(clips: Callable[..., Imported]) -> None:
    assert "by time, 16 a second" in clips({"num_frames": 81}).differing["num_frames"]


@pytest.mark.parametrize(
    ("video", "refused"),
    [
        ({"is_i2v": True}, "is_i2v"),
        ({"bucket_strategy": "resolution_frames", "frame_interval": 16}, "max_frames"),
        ({"bucket_strategy": "duration"}, "bucket_strategy"),
        ([81], "video"),
    ],
)
def test_what_a_block_of_videos_cannot_say_is_refused(video: Any, refused: str, clips: Callable[..., Imported]) -> None:
    assert refused in clips(video).refused


def test_a_table_of_videos_has_to_hold_their_frames_and_rate(clips: Callable[..., Imported]) -> None:
    parquet = {"path": "/output/t.parquet", "width_column": "w", "height_column": "h", "num_frames_column": "n"}
    assert "fps_column" in clips({}, metadata_backend="parquet", parquet=parquet).refused
    told = clips({}, metadata_backend="parquet", parquet=parquet | {"fps_column": "rate"})
    columns = told.spec["training"]["data"]["datasets"][0]["metadata"]["parquet"]
    assert (columns["framesColumn"], columns["fpsColumn"]) == ("n", "rate")


def test_a_block_of_videos_of_a_data_set_of_pictures_changes_nothing(clips: Callable[..., Imported]) -> None:
    job = clips({"num_frames": 81}, dataset_type="image")
    assert "video" not in job.spec["training"]["data"]["datasets"][0]
    assert "dataset_type video" in job.ignored["video"]
