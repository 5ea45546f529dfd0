"""Pictures made while training, to look at."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictFloat, StrictInt

from oarlock_api.group import Group
from oarlock_api.location import Location
from oarlock_api.primitives import Label, LongText
from oarlock_api.rules import ListMap, ListSet, Rule, at_least_one
from oarlock_api.weights import VIDEO_FAMILIES, VIDEO_FPS, VIDEO_INTERVAL, VideoFrames

PictureSize = Annotated[str, Field(max_length=11, pattern=r"^[1-9][0-9]{1,4}x[1-9][0-9]{1,4}$")]

Frames = Annotated[
    VideoFrames,
    Rule(
        cel=f"self % {VIDEO_INTERVAL} == 1",
        message=f"validation.frames is 1 more than a multiple of {VIDEO_INTERVAL}, the frames of a latent: "
        f"{', '.join(str(1 + number * VIDEO_INTERVAL) for number in range(3))} and so on",
        holds=lambda frames: frames % VIDEO_INTERVAL == 1,
    ),
]


class Prompt(Group):
    """One prompt of the validation."""

    name: Label = Field(description="Name of the picture's file.")
    prompt: LongText = Field(description="The prompt. SimpleTuner: user_prompt_library, validation_prompt.")


class Validation(Group):
    """Pictures from the weights of the moment."""

    admission: ClassVar[tuple[Rule, ...]] = (
        at_least_one(
            "prompts",
            "prompts_from",
            message="validation has nothing to draw: set validation.prompts, validation.promptsFrom or both",
        ),
    )

    every_steps: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] = Field(
        description="Optimizer steps between validations; the last one comes at the end. SimpleTuner: validation_steps."
    )
    prompts: Annotated[tuple[Prompt, ...], Field(max_length=256), ListMap("name")] = Field(
        default=(), description="Prompts. SimpleTuner: validation_prompt, user_prompt_library."
    )
    prompts_from: Location | None = Field(
        default=None,
        description="A JSON file of name: prompt, like SimpleTuner's user_prompt_library; at most 256 prompts in all.",
    )
    references: Location | None = Field(
        default=None,
        description="Pictures that the model is given beside the noise (Flux1's Kontext, Fill, Canny and Depth, Flux2, "
        "QwenImage's Edit): boat.png for the prompt named boat, cropped to each picture's shape. All prompts need one then.",
    )
    negative_prompt: LongText | None = Field(
        default=None,
        description="What pictures are to be unlike. Each step is then two passes, with guidance as their scale and 1 for "
        "the guidance embedding; families that have none make two without it, too: unlike the empty prompt. SimpleTuner: "
        "validation_negative_prompt.",
    )
    guidance: Annotated[StrictFloat, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="Guidance scale; absent = the model's usual value (Dev 3.5, Krea 4.5, Kontext 2.5, Fill and Canny 30, "
        "Depth 10; KleinBase 4, Klein 1, Flux2 Dev 4; ZImage Base 4, Turbo 0; StableDiffusion3 Large 3.5, Medium 4.5; "
        "QwenImage 4; Wan 5). Schnell takes none without negativePrompt. Of models that are told none it is that of two "
        "passes for each step; ZImage makes one at 0, the others at 1 and below. SimpleTuner: validation_guidance.",
    )
    inference_steps: Annotated[StrictInt, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="Denoising steps; absent = the model's usual value (28, Schnell 4, Fill and Canny 50, Depth 30; Flux2 "
        "50, Klein 4; ZImage Base 50, Turbo 9; StableDiffusion3 Medium 40; QwenImage and Wan 50). SimpleTuner: "
        "validation_num_inference_steps.",
    )
    resolutions: Annotated[tuple[PictureSize, ...], Field(min_length=1, max_length=16), ListSet()] = Field(
        default=("1024x1024",),
        description="WIDTHxHEIGHT in pixels, rounded down to multiples of 16. SimpleTuner: validation_resolution.",
    )
    frames: Frames = Field(
        default=1,
        description=f"Frames of each video that is drawn, at {VIDEO_FPS} a second; 1 = a picture. For Wan alone. "
        "SimpleTuner: validation_num_video_frames.",
    )
    seed: Annotated[StrictInt, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="Seed; absent = training.seed. SimpleTuner: validation_seed."
    )


def frames_fit_the_model() -> Rule:
    """A rule of spec.training."""

    def holds(training: Any) -> bool:
        drawn: Validation | None = training.validation
        return training.model.family in VIDEO_FAMILIES or drawn is None or drawn.frames == 1

    return Rule(
        cel=f"self.model.family in {[str(family) for family in VIDEO_FAMILIES]} || !has(self.validation) || "
        "self.validation.frames == 1",
        message="validation.frames is for models of videos (model.family: "
        f"{', '.join(VIDEO_FAMILIES)}): set that, or remove validation.frames",
        holds=holds,
    )
