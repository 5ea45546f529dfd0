"""spec.training: what the built-in trainer does."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictBool, StrictInt

from oarlock_api.checkpoint import Checkpoint
from oarlock_api.data import Data
from oarlock_api.dataset import ResolutionType, Role, Size
from oarlock_api.engine import (
    ActivationCheckpointing,
    Attention,
    Compile,
    Engine,
    OffloadOptimizer,
    Precision,
    Strategy,
)
from oarlock_api.group import Group
from oarlock_api.location import Location, S3Connection
from oarlock_api.objective import Objective
from oarlock_api.optimization import Ema, GradientClipping, Optimizer, OptimizerName
from oarlock_api.profiling import Profile
from oarlock_api.publishing import Publication, Tracker
from oarlock_api.rules import ListMap, Rule, only_when
from oarlock_api.second_pictures import references_fit_the_model
from oarlock_api.training_rules import s3_connections_exist
from oarlock_api.validation import Validation, frames_fit_the_model
from oarlock_api.videos import videos_fit_the_model
from oarlock_api.weights import Lora, Method, Model


class Task(StrEnum):
    """What a job does with its model."""

    TRAIN = "Train"
    PREPROCESS = "Preprocess"
    EVALUATE = "Evaluate"


class Training(Group):
    """The built-in trainer's work."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.task != 'Train' || [has(self.steps), has(self.epochs)].exists_one(x, x)",
            message="say how long to train: set exactly one of training.steps and training.epochs",
            holds=lambda training: training.task != Task.TRAIN or (training.steps is None) != (training.epochs is None),
        ),
        Rule(
            cel="self.task != 'Evaluate' || has(self.validation) || "
            "self.data.datasets.exists(d, has(d.role) && d.role == 'Evaluation')",
            message="task: Evaluate has nothing to judge by: give a data set role: Evaluation, or set training.validation, "
            "or both",
            holds=lambda training: (
                training.task != Task.EVALUATE
                or training.validation is not None
                or any(dataset.role == Role.EVALUATION for dataset in training.data.datasets)
            ),
        ),
        Rule(
            cel="!has(self.effectiveBatch) || self.effectiveBatch % self.batchSize == 0",
            message="training.effectiveBatch is cut into micro-batches of batchSize: set it to a multiple of that",
            holds=lambda training: not training.effective_batch or training.effective_batch % training.batch_size == 0,
        ),
        Rule(
            cel="!has(self.effectiveBatch) || self.gradientAccumulation == 1",
            message="training.effectiveBatch says how many micro-batches a step has: remove gradientAccumulation, or "
            "effectiveBatch",
            holds=lambda training: not training.effective_batch or training.gradient_accumulation == 1,
        ),
        only_when(
            "lora",
            setting="method",
            allowed=("LoRA",),
            message="training.lora (with quantizeBase) needs training.method: LoRA; set it, or remove lora",
        ),
        Rule(
            cel="!has(self.validation) || !has(self.engine.zeroStage) || self.engine.zeroStage != 3",
            message="validation needs the whole model on one GPU, ZeRO stage 3 has it nowhere: use engine.zeroStage 1 "
            "or 2, or remove validation",
            holds=lambda training: training.validation is None or training.engine.zero_stage != 3,
        ),
        Rule(
            cel="self.method != 'LoRA' || self.engine.strategy != 'DeepSpeed'",
            message="LoRA runs on DDP, its optimizer state is too small to shard: set engine.strategy to Auto or DDP",
            holds=lambda training: training.method != Method.LORA or training.engine.strategy != Strategy.DEEPSPEED,
        ),
        Rule(
            cel="!(self.optimizer.name in ['Prodigy', 'AdamWBF16', 'AdamWScheduleFree']) || self.method == 'LoRA' || "
            "self.engine.strategy == 'DDP'",
            message="optimizer.name Prodigy, AdamWBF16 and AdamWScheduleFree need their whole state on each GPU: use them "
            "with method: LoRA, or set engine.strategy to DDP",
            holds=lambda training: (
                training.optimizer.name
                not in {OptimizerName.PRODIGY, OptimizerName.ADAMW_BF16, OptimizerName.ADAMW_SCHEDULE_FREE}
                or training.method == Method.LORA
                or training.engine.strategy == Strategy.DDP
            ),
        ),
        Rule(
            cel="!has(self.ema) || self.optimizer.name != 'AdamWScheduleFree'",
            message="AdamWScheduleFree exports an average already: remove ema",
            holds=lambda training: training.ema is None or training.optimizer.name != OptimizerName.ADAMW_SCHEDULE_FREE,
        ),
        Rule(
            cel="!has(self.ema) || self.optimizer.name != 'AdamWBF16'",
            message="AdamWBF16 keeps no float32 weights to average: remove ema, or set optimizer.name to AdamW",
            holds=lambda training: training.ema is None or training.optimizer.name != OptimizerName.ADAMW_BF16,
        ),
        Rule(
            cel="self.method != 'LoRA' || self.engine.offloadOptimizer == 'None'",
            message="the optimizer state of LoRA is small and stays on the GPU: set engine.offloadOptimizer to None",
            holds=lambda training: (
                training.method != Method.LORA or training.engine.offload_optimizer == OffloadOptimizer.NONE
            ),
        ),
        Rule(
            cel="self.method == 'LoRA' || !self.data.datasets.exists(d, has(d.role) && d.role == 'Regularization')",
            message="a data set with role: Regularization is trained towards the model without its adapters, which only "
            "method: LoRA has: set that, or role: Train",
            holds=lambda training: (
                training.method == Method.LORA
                or all(dataset.role != Role.REGULARIZATION for dataset in training.data.datasets)
            ),
        ),
        *references_fit_the_model(),
        videos_fit_the_model(),
        frames_fit_the_model(),
        Rule(
            cel="self.resolutionType == 'Area' ? self.resolution <= 64.0 : self.resolution >= 64.0",
            message="training.resolution is in megapixels with resolutionType Area (at most 64), else in pixels (at "
            "least 64)",
            holds=lambda training: (
                training.resolution <= 64
                if training.resolution_type == ResolutionType.AREA
                else training.resolution >= 64
            ),
        ),
        *s3_connections_exist(),
    )

    task: Task = Field(
        default=Task.TRAIN,
        description="Train, Preprocess (fill the caches, then finish) or Evaluate (loss and pictures, no update).",
    )
    model: Model = Field(description="The base model.")
    init_from: Location | None = Field(
        default=None,
        description="Start from these weights of an earlier run, without its step count and optimizer state. "
        "SimpleTuner: init_lora.",
    )
    method: Method = Field(
        default=Method.FULL, description="Full = all parameters, LoRA = low-rank adapters. SimpleTuner: model_type."
    )
    lora: Lora | None = Field(default=None, description="The adapters, with method LoRA; absent = their defaults.")
    steps: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None, description="Optimizer steps in all. SimpleTuner: max_train_steps."
    )
    epochs: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Passes over the data. SimpleTuner: num_train_epochs."
    )
    batch_size: Annotated[StrictInt, Field(ge=1, le=4096)] = Field(
        default=1, description="Samples per GPU and micro-batch. SimpleTuner: train_batch_size."
    )
    gradient_accumulation: Annotated[StrictInt, Field(ge=1, le=4096)] = Field(
        default=1, description="Micro-batches per optimizer step. SimpleTuner: gradient_accumulation_steps."
    )
    effective_batch: Annotated[StrictInt, Field(ge=1, le=16_777_216)] | None = Field(
        default=None,
        description="Samples of each optimizer step, on however many GPUs: their micro-batches are dealt to those there "
        "are. Absent = batchSize x GPUs x gradientAccumulation.",
    )
    seed: Annotated[StrictInt, Field(ge=0, le=2**53)] = Field(
        default=42, description="Seed of every draw: order, noise, crops, dropout. SimpleTuner: seed."
    )
    resolution: Size = Field(
        default=1024, description="Size of the pictures, in the unit of resolutionType. SimpleTuner: resolution."
    )
    resolution_type: ResolutionType = Field(
        default=ResolutionType.PIXEL_AREA,
        description="PixelArea = edge in pixels of a square with the picture's area, Pixel = shorter edge in pixels, "
        "Area = megapixels. SimpleTuner: resolution_type.",
    )
    aspect_buckets: StrictBool = Field(
        default=True, description="Keep aspect ratios, one shape per batch; false = square crops only."
    )
    precision: Precision = Field(
        default=Precision.BF16,
        description="Arithmetic of the forward and backward pass; master weights are float32. SimpleTuner: "
        "mixed_precision.",
    )
    attention: Attention = Field(
        default=Attention.AUTO,
        description="Attention kernel; Auto = the fastest that runs. SimpleTuner: attention_mechanism.",
    )
    objective: Objective = Field(default=Objective(), description="What is learnt: noise levels, loss, dropout.")
    optimizer: Optimizer = Field(default=Optimizer(), description="How parameters are updated.")
    gradient_clipping: GradientClipping = Field(
        default=GradientClipping(), description="The bound on gradients before the update."
    )
    engine: Engine = Field(default=Engine(), description="How the work is spread over the GPUs.")
    compile: Compile = Field(default=Compile(), description="torch.compile, per block.")
    activation_checkpointing: ActivationCheckpointing = Field(
        default=ActivationCheckpointing(), description="Recompute activations to save memory."
    )
    ema: Ema | None = Field(
        default=None, description="Moving average of the weights; absent = none. SimpleTuner: use_ema."
    )
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="When to save, what to keep, where to resume.")
    validation: Validation | None = Field(
        default=None, description="Pictures made while training; absent = none. SimpleTuner: validation_*."
    )
    tracking: Annotated[tuple[Tracker, ...], Field(max_length=8), ListMap("name")] = Field(
        default=(), description="Where figures are reported. SimpleTuner: report_to."
    )
    profile: Profile | None = Field(
        default=None, description="Chrome traces of some steps, below profile in the output; absent = none."
    )
    publish: Annotated[tuple[Publication, ...], Field(max_length=8), ListMap("name")] = Field(
        default=(), description="Where the finished model is published."
    )
    s3_connections: Annotated[tuple[S3Connection, ...], Field(max_length=16), ListMap("name")] = Field(
        default=(),
        description="S3 or R2 services that s3 locations name. An entry with a name alone is AWS with the standard "
        "credential chain.",
    )
    data: Data = Field(description="What is trained on.")
