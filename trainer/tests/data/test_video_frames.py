"""Which frames of a video are a sample: by time, and never more than there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oarlock_api.videos import Video
from oarlock_trainer.data.video_frames import available, bucket_frames, places

RATES = st.sampled_from([8.0, 12.0, 15.0, 16.0, 24000 / 1001, 24.0, 25.0, 30000 / 1001, 30.0, 48.0, 50.0, 60.0, 7.3])


def longest(frames: int, rate: float, fps: float = 16.0) -> int:
    return int(available(np.array([frames]), np.array([rate]), fps)[0])


def test_a_video_of_the_samples_own_rate_gives_each_of_its_frames_once() -> None:
    assert longest(81, 16.0) == 81
    assert places(81, 16.0, 16.0).tolist() == list(range(81))


def test_a_faster_video_is_thinned_to_the_nearest_frames() -> None:
    assert longest(151, 30.0) == 81
    assert places(5, 30.0, 16.0).tolist() == [0, 2, 4, 6, 8]
    assert places(9, 24.0, 16.0).tolist() == [0, 2, 3, 5, 6, 8, 9, 11, 12]


def test_a_slower_video_shows_frames_twice_and_lasts_as_long_as_it_did() -> None:
    assert longest(20, 8.0) == 39
    assert places(6, 8.0, 16.0).tolist() == [0, 1, 1, 2, 2, 3]


@given(st.integers(1, 5000), RATES, RATES)
def test_the_longest_sample_needs_no_frame_that_is_not_there_and_one_more_would(
    frames: int, rate: float, fps: float
) -> None:
    most = longest(frames, rate, fps)
    assert places(most, rate, fps)[-1] < frames
    assert places(most + 1, rate, fps)[-1] >= frames


def test_of_an_unknown_length_or_rate_there_is_no_sample() -> None:
    assert available(np.array([0.0, -1.0, 10.0]), np.array([16.0, 16.0, 0.0]), 16.0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("fps", [0, 0.001, 0.999])
def test_of_less_than_a_frame_a_second_no_sample_is_taken(fps: float) -> None:
    """A sample of a thousand frames would be minutes of decoding for seconds of learning."""
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Video.model_validate({"fps": fps})


def test_a_bucket_has_one_more_than_a_multiple_of_the_interval_and_no_more_than_the_video_may_give() -> None:
    video = Video.model_validate({"frames": 81, "minFrames": 17, "frameInterval": 16})
    given_frames = np.array([17, 32, 33, 80, 81, 97, 4000])
    assert bucket_frames(given_frames, video).tolist() == [17, 17, 33, 65, 81, 81, 81]
    one = Video.model_validate({"frames": 49, "minFrames": 49, "frameInterval": 48})
    assert bucket_frames(np.array([81]), one).tolist() == [49]
