"""How the work is spread over GPUs and fitted into them: strategy, compilation, activation checkpointing."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictBool, StrictInt

from oarlock_api.group import Group
from oarlock_api.rules import Rule, only_when


class Precision(StrEnum):
    """Arithmetic of forward and backward pass."""

    BF16 = "BF16"
    FP8 = "FP8"


class Attention(StrEnum):
    """Attention kernels."""

    AUTO = "Auto"
    CUDNN = "CuDNN"
    FLASH2 = "Flash2"
    FLASH3 = "Flash3"
    SDPA = "SDPA"


class Strategy(StrEnum):
    """How ranks work together."""

    AUTO = "Auto"
    DDP = "DDP"
    DEEPSPEED = "DeepSpeed"


class OffloadOptimizer(StrEnum):
    """Where the optimizer's state is kept."""

    NONE = "None"
    CPU = "CPU"


class CompileMode(StrEnum):
    """How much torch.compile does."""

    NONE = "None"
    DEFAULT = "Default"
    MAX_AUTOTUNE = "MaxAutotune"


class ActivationCheckpointingMode(StrEnum):
    """Which blocks are recomputed."""

    AUTO = "Auto"
    NONE = "None"
    FULL = "Full"
    PARTIAL = "Partial"


class Engine(Group):
    """How parameters, gradients and optimizer state are spread over the ranks."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "zero_stage",
            setting="strategy",
            allowed=("DeepSpeed",),
            message="engine.zeroStage needs engine.strategy: DeepSpeed (Auto chooses the stage itself; DDP has none)",
        ),
        Rule(
            cel="self.offloadOptimizer == 'None' || self.strategy != 'DDP'",
            message="engine.offloadOptimizer needs DeepSpeed; set engine.strategy to DeepSpeed, or offloadOptimizer to "
            "None",
            holds=lambda engine: engine.offload_optimizer == OffloadOptimizer.NONE or engine.strategy != Strategy.DDP,
        ),
    )

    strategy: Strategy = Field(
        default=Strategy.AUTO,
        description="Auto = DDP for LoRA, DeepSpeed for method Full: ZeRO stage 1, or 2 where the planner finds that faster "
        "with gradientAccumulation or without overlap (status.resolved.plan). accelerate: distributed_type.",
    )
    zero_stage: Annotated[StrictInt, Field(ge=1, le=3)] | None = Field(
        default=None,
        description="ZeRO stage, only with strategy DeepSpeed, where absent is 1. DeepSpeed: zero_stage.",
    )
    offload_optimizer: OffloadOptimizer = Field(
        default=OffloadOptimizer.NONE,
        description="Keep the optimizer state in the node's memory. DeepSpeed: offload_optimizer_device.",
    )
    overlap_communication: StrictBool = Field(
        default=True, description="Exchange gradients while the backward pass runs. DeepSpeed: overlap_comm."
    )
    bucket_elements: Annotated[StrictInt, Field(ge=1_000_000, le=4_000_000_000)] | None = Field(
        default=None,
        description="Elements per gradient exchange; absent = the planner's choice. DeepSpeed: reduce_bucket_size.",
    )


class Compile(Group):
    """torch.compile, applied to each block."""

    mode: CompileMode = Field(
        default=CompileMode.NONE,
        description="None = eager, Default, or MaxAutotune (slow to start). accelerate: dynamo_config.",
    )
    dynamic: StrictBool | None = Field(
        default=None,
        description="One graph for all shapes instead of one per shape; absent = where batches have more than four shapes, "
        "or texts of any length. accelerate: dynamo_use_dynamic.",
    )
    full_graph: StrictBool = Field(
        default=False,
        description="Fail on graph breaks instead of going around them. accelerate: dynamo_use_fullgraph.",
    )


class ActivationCheckpointing(Group):
    """Recompute activations in the backward pass instead of keeping them."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.percent) == (self.mode == 'Partial')",
            message="activationCheckpointing.percent belongs to mode: Partial: set both or neither",
            holds=lambda group: (group.percent is not None) == (group.mode == ActivationCheckpointingMode.PARTIAL),
        ),
    )

    mode: ActivationCheckpointingMode = Field(
        default=ActivationCheckpointingMode.AUTO,
        description="Auto = as many blocks as the GPU's memory requires. SimpleTuner: gradient_checkpointing.",
    )
    percent: Annotated[StrictInt, Field(ge=1, le=99)] | None = Field(
        default=None,
        description="Share of the blocks that are recomputed, in percent, with mode Partial. "
        "SimpleTuner: gradient_checkpointing_segment_stride.",
    )
