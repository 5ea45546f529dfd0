"""The training objective: flow matching with its timestep draw, guidance, loss and caption dropout."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictBool, StrictFloat

from oarlock_api.group import Group
from oarlock_api.primitives import Probability
from oarlock_api.rules import Rule, only_when, ordered

BetaParameter = Annotated[StrictFloat, Field(gt=0, le=100)]
GuidanceScale = Annotated[StrictFloat, Field(ge=0, le=100)]


class Timesteps(StrEnum):
    """Distribution of the noise level."""

    SIGMOID = "Sigmoid"
    UNIFORM = "Uniform"
    BETA = "Beta"


class GuidanceMode(StrEnum):
    """How the guidance value is chosen."""

    CONSTANT = "Constant"
    RANDOM = "Random"


class Loss(StrEnum):
    """Error measures."""

    MSE = "MSE"
    HUBER = "Huber"
    SMOOTH_L1 = "SmoothL1"


class Weighting(StrEnum):
    """How much a noise level counts."""

    NONE = "None"
    SIGMA_SQRT = "SigmaSqrt"
    COS_MAP = "CosMap"


class Guidance(Group):
    """The guidance value that a guidance-distilled model is told during training."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "min", setting="mode", allowed=("Random",), message="guidance.min needs guidance.mode: Random; remove min"
        ),
        only_when(
            "max", setting="mode", allowed=("Random",), message="guidance.max needs guidance.mode: Random; remove max"
        ),
        Rule(
            cel="self.mode != 'Random' || (has(self.min) && has(self.max))",
            message="guidance.mode: Random needs guidance.min and guidance.max",
            holds=lambda guidance: (
                guidance.mode != GuidanceMode.RANDOM or (guidance.min is not None and guidance.max is not None)
            ),
        ),
        ordered("min", "max", message="guidance.min is above guidance.max; swap them"),
    )

    mode: GuidanceMode = Field(
        default=GuidanceMode.CONSTANT,
        description="Constant = always `value`; Random = uniform between min and max. SimpleTuner: flux_guidance_mode.",
    )
    value: GuidanceScale = Field(default=1.0, description="Value with mode Constant. SimpleTuner: flux_guidance_value.")
    min: GuidanceScale | None = Field(
        default=None, description="Lower bound with mode Random. SimpleTuner: flux_guidance_min."
    )
    max: GuidanceScale | None = Field(
        default=None, description="Upper bound with mode Random. SimpleTuner: flux_guidance_max."
    )


class Objective(Group):
    """What is predicted, for which noise level, and how the error is measured."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "beta_alpha",
            setting="timesteps",
            allowed=("Beta",),
            message="objective.betaAlpha belongs to timesteps: Beta; remove betaAlpha",
        ),
        only_when(
            "beta_beta",
            setting="timesteps",
            allowed=("Beta",),
            message="objective.betaBeta belongs to timesteps: Beta; remove betaBeta",
        ),
        Rule(
            cel="self.minNoise < self.maxNoise",
            message="objective.minNoise is not below maxNoise: no noise level would be left; lower minNoise",
            holds=lambda objective: objective.min_noise < objective.max_noise,
        ),
    )

    timestep_shift: Annotated[StrictFloat, Field(gt=0, le=100)] = Field(
        default=3.0,
        description="Shift s of the noise level: sigma' = s * sigma / (1 + (s - 1) * sigma). Ignored with autoShift. "
        "SimpleTuner: flow_schedule_shift.",
    )
    auto_shift: StrictBool = Field(
        default=False,
        description="Take the family's shift: by the picture's size, StableDiffusion3 and Wan 3. SimpleTuner: "
        "flow_schedule_auto_shift.",
    )
    timesteps: Timesteps = Field(
        default=Timesteps.SIGMOID,
        description="Distribution of the noise level before the shift. SimpleTuner: flow_use_uniform_schedule, "
        "flow_use_beta_schedule.",
    )
    sigmoid_scale: Annotated[StrictFloat, Field(gt=0, le=100)] = Field(
        default=1.0,
        description="With Sigmoid: sigma = sigmoid(scale * N(0, 1)). SimpleTuner: flow_sigmoid_scale.",
    )
    beta_alpha: BetaParameter | None = Field(
        default=None,
        description="Alpha of the Beta distribution; absent = 2. SimpleTuner: flow_beta_schedule_alpha.",
    )
    beta_beta: BetaParameter | None = Field(
        default=None, description="Beta of the Beta distribution; absent = 2. SimpleTuner: flow_beta_schedule_beta."
    )
    min_noise: Annotated[StrictFloat, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="Least noise level (sigma) that is trained: what is drawn is spread over [minNoise, maxNoise]. Timestep "
        "200 of 1000 is 0.2.",
    )
    max_noise: Annotated[StrictFloat, Field(ge=0, le=1)] = Field(
        default=1.0, description="Greatest noise level (sigma) that is trained."
    )
    weighting: Weighting = Field(
        default=Weighting.NONE,
        description="Weight of a sample's loss by its sigma: SigmaSqrt = sigma^-2, CosMap = "
        "2 / (pi (1 - 2 sigma + 2 sigma^2)). diffusers: weighting_scheme.",
    )
    guidance: Guidance = Field(
        default=Guidance(), description="Guidance value during training; used only if the model has a guidance input."
    )
    loss: Loss = Field(
        default=Loss.MSE,
        description="Error measure, in float32; Huber and SmoothL1 use the threshold 0.1. SimpleTuner: loss_type.",
    )
    caption_dropout: Probability = Field(
        default=0.1,
        description="Share of samples that are trained without caption. SimpleTuner: caption_dropout_probability.",
    )
    attention_mask: StrictBool = Field(
        default=False,
        description="Mask the padding of text tokens; ZImage's and QwenImage's always is, that in front of Flux2 Dev's texts "
        "never. SimpleTuner: flux_attention_masked_training.",
    )
