"""Videos in place of pictures: how many of their frames are a sample, and which models learn from them."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictFloat, StrictInt

from oarlock_api.group import Group
from oarlock_api.rules import Rule, ordered
from oarlock_api.weights import VIDEO_FAMILIES, VIDEO_INTERVAL, VideoFrames


class Video(Group):
    """The source holds videos: which of their frames are a sample."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.frameInterval % {VIDEO_INTERVAL} == 0",
            message=f"video.frameInterval is a multiple of {VIDEO_INTERVAL}, the frames of a latent: take the next one",
            holds=lambda video: video.frame_interval % VIDEO_INTERVAL == 0,
        ),
        Rule(
            cel="(self.frames - 1) % self.frameInterval == 0 && (self.minFrames - 1) % self.frameInterval == 0",
            message="video.frames and video.minFrames are 1 more than a multiple of video.frameInterval (with 16: 1, 17, 33, "
            "49, 65, 81): take the next such number, or another frameInterval",
            holds=lambda video: (
                (video.frames - 1) % video.frame_interval == 0 and (video.min_frames - 1) % video.frame_interval == 0
            ),
        ),
        ordered("min_frames", "frames", message="video.minFrames is above video.frames: lower it"),
    )

    frames: VideoFrames = Field(
        default=81,
        description="The most frames of a sample, from the beginning of its video; 81 are five seconds of Wan's. "
        "SimpleTuner: video.num_frames.",
    )
    min_frames: VideoFrames = Field(
        default=17,
        description="Videos of fewer are left out. 17, a second, are the fewest of which the default frameInterval makes "
        "more than a picture. SimpleTuner: video.min_frames.",
    )
    frame_interval: Annotated[StrictInt, Field(ge=VIDEO_INTERVAL, le=1024)] = Field(
        default=16,
        description="Frames by which buckets differ: of a video of fewer than frames, 1 + a multiple of it are taken. The "
        "smaller, the more buckets, each of which has to fill a step. SimpleTuner: video.frame_interval.",
    )
    fps: Annotated[StrictFloat, Field(ge=1, le=240)] = Field(
        default=16.0,
        description="Frames a second of a sample, as its model draws them; Wan: 16. Of a video with more the nearest are "
        "taken, of one with fewer some twice: it moves as fast as it did.",
    )


def videos_fit_the_model() -> Rule:
    """A rule of spec.training."""
    return Rule(
        cel=f"self.model.family in {[str(family) for family in VIDEO_FAMILIES]} || "
        "!self.data.datasets.exists(d, has(d.video))",
        message=f"a data set with video is for models of videos (model.family: {', '.join(VIDEO_FAMILIES)}): set "
        "that, or remove video",
        holds=_fit,
    )


def _fit(training: Any) -> bool:
    return training.model.family in VIDEO_FAMILIES or all(one.video is None for one in training.data.datasets)
