"""How the parameters are updated: optimizer, learning rate schedule, clipping, and the moving average."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictFloat, StrictInt

from oarlock_api.group import Group
from oarlock_api.primitives import Step, Unstructured
from oarlock_api.rules import Rule, only_when

Beta = Annotated[StrictFloat, Field(ge=0, lt=1)]
LearningRate = Annotated[StrictFloat, Field(gt=0, le=1)]


class OptimizerName(StrEnum):
    """Algorithms."""

    ADAMW = "AdamW"
    ADAMW_8BIT = "AdamW8Bit"
    LION = "Lion"
    PRODIGY = "Prodigy"
    ADAMW_BF16 = "AdamWBF16"
    ADAMW_SCHEDULE_FREE = "AdamWScheduleFree"


class WeightDecayOn(StrEnum):
    """What weight decay is applied to."""

    ALL = "All"
    MATRICES = "Matrices"


class ScheduleName(StrEnum):
    """Shapes of the learning rate over time."""

    CONSTANT = "Constant"
    LINEAR = "Linear"
    SINE = "Sine"
    COSINE = "Cosine"
    COSINE_WITH_RESTARTS = "CosineWithRestarts"
    POLYNOMIAL = "Polynomial"


class ClippingMethod(StrEnum):
    """How gradients are bounded."""

    NONE = "None"
    NORM = "Norm"
    VALUE = "Value"


class EmaDevice(StrEnum):
    """Where the average is kept."""

    CPU = "CPU"
    GPU = "GPU"


class Schedule(Group):
    """The learning rate over time."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "power",
            setting="name",
            allowed=("Polynomial",),
            message="schedule.power belongs to name: Polynomial; remove power",
        ),
        only_when(
            "cycles",
            setting="name",
            allowed=("CosineWithRestarts", "Sine"),
            message="schedule.cycles belongs to name: CosineWithRestarts or Sine; remove cycles",
        ),
    )

    name: ScheduleName = Field(default=ScheduleName.CONSTANT, description="Shape. SimpleTuner: lr_scheduler.")
    warmup_steps: Step = Field(
        default=0,
        description="Optimizer steps of linear warm-up from 0. SimpleTuner: lr_warmup_steps.",
    )
    cycles: Annotated[StrictInt, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="Number of cycles; absent = 1. SimpleTuner: lr_num_cycles.",
    )
    power: Annotated[StrictFloat, Field(gt=0, le=10)] | None = Field(
        default=None,
        description="Exponent with name Polynomial; absent = 1 (linear). SimpleTuner: lr_power.",
    )
    end_learning_rate: Annotated[StrictFloat, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Learning rate at the end of the decay; absent = 0. SimpleTuner: lr_end.",
    )


class Optimizer(Group):
    """The optimizer and its hyper-parameters."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.name != 'Prodigy' || self.learningRate >= 0.1",
            message="Prodigy finds the learning rate itself, and learningRate multiplies it: set optimizer.learningRate to "
            "1.0 (at least 0.1)",
            holds=lambda optimizer: optimizer.name != OptimizerName.PRODIGY or optimizer.learning_rate >= 0.1,
        ),
        Rule(
            cel="self.name != 'AdamWScheduleFree' || self.schedule.name == 'Constant'",
            message="AdamWScheduleFree averages its steps in place of a schedule: set optimizer.schedule.name to Constant "
            "(warmupSteps may stay)",
            holds=lambda optimizer: (
                optimizer.name != OptimizerName.ADAMW_SCHEDULE_FREE or optimizer.schedule.name == ScheduleName.CONSTANT
            ),
        ),
    )

    name: OptimizerName = Field(
        default=OptimizerName.ADAMW,
        description="Algorithm; master weights and moments are float32 but for AdamW8Bit, and AdamWBF16, which rounds "
        "stochastically. Prodigy finds the learning rate, which is 1.0 then. These two and "
        "AdamWScheduleFree run with LoRA, or engine.strategy DDP. SimpleTuner: optimizer.",
    )
    learning_rate: LearningRate = Field(
        default=1.0e-5, description="Learning rate after the warm-up. SimpleTuner: learning_rate."
    )
    betas: Annotated[tuple[Beta, ...], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="Decay of the two moments; absent = 0.9, 0.999 (Lion: 0.9, 0.99). SimpleTuner: optimizer_beta1, "
        "optimizer_beta2.",
    )
    weight_decay: Annotated[StrictFloat, Field(ge=0, le=1)] = Field(
        default=0.01, description="Decoupled weight decay. SimpleTuner: adam_weight_decay."
    )
    weight_decay_on: WeightDecayOn = Field(
        default=WeightDecayOn.ALL,
        description="All = every trained parameter, Matrices = not biases and the scales of norms.",
    )
    schedule: Schedule = Field(default=Schedule(), description="The learning rate over time.")
    options: Annotated[Unstructured, Field(max_length=32)] = Field(
        default={},
        description="Further arguments of the algorithm, such as eps. SimpleTuner: optimizer_config.",
    )


class GradientClipping(Group):
    """The bound on gradients before the update."""

    method: ClippingMethod = Field(
        default=ClippingMethod.NORM,
        description="Norm = global norm over all ranks, Value = each element, None = unbounded. "
        "SimpleTuner: grad_clip_method.",
    )
    max: Annotated[StrictFloat, Field(gt=0, le=1e6)] = Field(
        default=1.0, description="The bound. SimpleTuner: max_grad_norm."
    )


class Ema(Group):
    """An exponential moving average of the trained weights."""

    decay: Annotated[StrictFloat, Field(gt=0, lt=1)] = Field(description="Decay per update. SimpleTuner: ema_decay.")
    device: EmaDevice = Field(
        default=EmaDevice.GPU,
        description="Where the average is kept: each rank keeps its share, 1.5 GB of FLUX.1's 47.6 on each of 32 GPUs. "
        "CPU = where the GPUs have no room. SimpleTuner: ema_device.",
    )
    every_steps: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Optimizer steps between updates. SimpleTuner: ema_update_interval."
    )
