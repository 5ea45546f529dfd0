"""What one run asks of its GPUs: everything that memory, traffic and time are computed from, in one record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_api.engine import Attention, CompileMode, OffloadOptimizer, Precision, Strategy
from oarlock_api.optimization import EmaDevice, OptimizerName
from oarlock_api.weights import Lora, Method, QuantizeBase
from oarlock_trainer.data.batch_fit import Batch, batch_of
from oarlock_trainer.data.buckets import Size, target_sizes
from oarlock_trainer.data.pair_sizes import image_tokens as image_tokens_of
from oarlock_trainer.data.pair_sizes import pictures_of
from oarlock_trainer.models.families import family_of
from oarlock_trainer.plan.encoding import live, vae_batch
from oarlock_trainer.plan.parameters import Parameters, adapters, whole
from oarlock_trainer.plan.text_encoders import LIVE_BATCH, Home, home, live_captions
from oarlock_trainer.runtime.dealing import Dealing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oarlock_api.dataset import Dataset
    from oarlock_api.training import Training
    from oarlock_trainer.models.architecture import Architecture
    from oarlock_trainer.models.family import Family

DDP = 0
"""The stage of a run that shards nothing."""
_BUCKET_ELEMENTS = 500_000_000
"""1 GB of bfloat16. DeepSpeed has one bucket in flight, so it must be worth a collective; 24 of them hold 12 B parameters."""
_MOST = 4096
"""Of training.batchSize and of training.gradientAccumulation."""
FROZEN_BYTES = {QuantizeBase.NONE: 2.0, QuantizeBase.INT8: 1.0, QuantizeBase.FP8: 1.0, QuantizeBase.NF4: 0.5625}
"""Bytes of a frozen parameter. NF4: half a byte, and a float32 scale for 64 of them (Dettmers et al. 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One run. `samples` per rank and micro-batch; `stage` is ZeRO's, or DDP."""

    family: Family
    shape: Architecture
    parameters: Parameters
    frozen_bytes: float = 2.0
    """Of a frozen parameter."""
    adapters: bool = False
    """Adapters alone are trained, in float32."""
    stage: int = 1
    ranks: int = 1
    ranks_per_node: int = 1
    samples: int = 1
    accumulation: int = 1
    micro_batches: int | None = None
    """Of all ranks in one step, where the job has it so (effectiveBatch): then `accumulation` is the most of a rank."""
    image_tokens: int = 4096
    frames: int = 1
    """Of the sample with the most tokens, which is a picture or a video."""
    text_tokens: int = 512
    optimizer: OptimizerName = OptimizerName.ADAMW
    offload: bool = False
    overlap: bool = True
    bucket_elements: int = _BUCKET_ELEMENTS
    ema: EmaDevice | None = None
    pictures: int = 1
    """Of each sample at least: 2 where all have a reference, whose tokens are image tokens, too."""
    encoded: int = 0
    """Pictures that the VAE takes at once while training; 0: all are encoded before."""
    encoded_pixels: int | None = None
    """Of each of them where there are videos as well, which may be smaller; None: of the sample with the most tokens."""
    encoded_frames: int = 0
    """Of the longest video that the VAE takes while training, one at a time; 0: it takes none."""
    text_home: Home = Home.NONE
    """Where the text encoders are while training."""
    captions: int = LIVE_BATCH
    """That they take at once."""
    compiled: bool = False
    lean: bool = False
    """Compiled blocks compute once more what is pointwise, instead of keeping it."""
    attention: Attention = Attention.AUTO
    fp8: bool = False

    @property
    def tokens(self) -> int:
        """Text and image tokens of a sample."""
        return self.image_tokens + self.text_tokens

    @property
    def text_share(self) -> float:
        """Of these tokens, the text's."""
        return self.text_tokens / self.tokens

    @property
    def batch(self) -> Batch:
        """What one optimizer step takes."""
        return Batch(
            per_rank=self.samples,
            ranks=self.ranks,
            accumulation=self.accumulation,
            ranks_per_node=self.ranks_per_node,
            micro_batches=self.micro_batches,
        )

    @property
    def nodes(self) -> int:
        """Nodes, all with the same number of ranks."""
        return -(-self.ranks // self.ranks_per_node)

    def in_micro_batches_of(self, samples: int) -> Workload | None:
        """The same samples of a step in other micro-batches; None where they do not come out even, or are too few to deal."""
        whole = self.batch.effective if self.micro_batches else self.samples * self.accumulation
        number, left = divmod(whole, samples)
        if left or (self.micro_batches and number < self.ranks):
            return None
        if not self.micro_batches:
            return replace(self, samples=samples, accumulation=number)
        return replace(self, samples=samples, micro_batches=number, accumulation=Dealing(number, self.ranks).passes)

    def on(self, ranks: int, ranks_per_node: int) -> Workload | None:
        """The same work on another number of GPUs; None where its step cannot be dealt to them."""
        other = replace(self, ranks=ranks, ranks_per_node=ranks_per_node)
        if not self.micro_batches:
            return other
        if self.micro_batches < ranks:
            return None
        return replace(other, accumulation=Dealing(self.micro_batches, ranks).passes)


def work_of(
    training: Training,
    shape: Architecture,
    *,
    ranks: int,
    ranks_per_node: int,
    image_tokens: int | None = None,
    frames: int = 1,
    text_tokens: int | None = None,
) -> Workload:
    """What `training` asks for; the stage is 1 (DDP: 0) where the job names none.

    `image_tokens` and `frames` are those of the largest bucket; without them, of the largest square that resolutions name, of
    videos the longest.
    `text_tokens` are those of the longest text; without them, of the family's published model.

    Raises ConfigurationError where a step cannot be dealt to so many ranks.
    """
    family = family_of(training.model)
    if image_tokens is None:
        image_tokens, frames = _largest_square(training)
    lora = (training.lora or Lora()) if training.method is Method.LORA else None
    parameters = adapters(shape, lora, family.presets) if lora else whole(shape)
    batch = batch_of(training, ranks=ranks, ranks_per_node=ranks_per_node)
    photos, mixed = live(training, videos=False), any(one.video for one in training.data.datasets)
    unsharded = training.engine.strategy is Strategy.DDP or lora is not None
    return Workload(
        family=family,
        shape=shape,
        parameters=parameters,
        frozen_bytes=FROZEN_BYTES[lora.quantize_base if lora else QuantizeBase.NONE],
        adapters=lora is not None,
        stage=DDP if unsharded else training.engine.zero_stage or 1,
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        samples=training.batch_size,
        accumulation=batch.accumulation,
        micro_batches=batch.micro_batches,
        image_tokens=image_tokens,
        frames=frames,
        pictures=min(pictures_of(one, training.model) for one in training.data.datasets),
        text_tokens=text_tokens or family.encoded.tokens,
        optimizer=training.optimizer.name,
        offload=training.engine.offload_optimizer is OffloadOptimizer.CPU,
        overlap=training.engine.overlap_communication,
        bucket_elements=training.engine.bucket_elements or _bucket(parameters),
        ema=training.ema.device if training.ema else None,
        encoded=vae_batch(training) if photos else 0,
        encoded_pixels=_most_pixels(training, photos) if mixed else None,
        encoded_frames=max((one.video.frames for one in live(training, videos=True) if one.video), default=0),
        text_home=home(training),
        captions=live_captions(training),
        compiled=training.compile.mode is not CompileMode.NONE,
        attention=training.attention,
        fp8=training.precision is Precision.FP8,
    )


def stages(work: Workload, training: Training) -> tuple[int, ...]:
    """Stages that may be taken, the one that needs least memory last: stage 2 keeps fewer gradients in these cases."""
    if training.engine.strategy is Strategy.AUTO and work.stage != DDP and (work.accumulation > 1 or not work.overlap):
        return (1, 2)
    return (work.stage,)


def text_homes(work: Workload) -> Iterator[Workload]:
    """The same work, with its text encoders where they may be, if it has any."""
    yield work
    if work.text_home is Home.GPU:
        yield replace(work, text_home=Home.HOST)


def same_effective_batch(work: Workload) -> Iterator[Workload]:
    """Other micro-batches with which a step has the same samples, the largest first."""
    samples = work.batch.effective if work.micro_batches else work.samples * work.accumulation
    for size in range(min(samples, _MOST), 0, -1):
        other = work.in_micro_batches_of(size)
        if other and other.accumulation <= _MOST and size != work.samples:
            yield other


def _bucket(parameters: Parameters) -> int:
    """Elements of an exchange: no more than there are, no fewer than the largest tensor, which would bypass it."""
    return max(min(_BUCKET_ELEMENTS, parameters.trained), parameters.largest)


def _largest_square(training: Training) -> tuple[int, int]:
    """Its image tokens and frames."""
    found = []
    for one in training.data.datasets:
        size = _square(one, training)
        found.append((image_tokens_of(one, size, training.model), size.frames))
    return max(found)


def _most_pixels(training: Training, datasets: Sequence[Dataset]) -> int | None:
    return max((size.width * size.height for size in (_square(one, training) for one in datasets)), default=None)


def _square(dataset: Dataset, training: Training) -> Size:
    resolution, kind = dataset.resolution or training.resolution, dataset.resolution_type or training.resolution_type
    step = family_of(training.model).grid.bucket
    width, height = target_sizes([1.0], resolution=float(resolution), kind=kind, step=step)
    return Size(int(width[0]), int(height[0]), dataset.video.frames if dataset.video else 1)
