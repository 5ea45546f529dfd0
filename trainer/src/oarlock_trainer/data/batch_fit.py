"""Whether every bucket can fill an optimizer step, and how often its samples have to be seen for that.

Effective batch E = batchSize x ranks x gradientAccumulation, or effectiveBatch. A bucket of n pictures with `repeats` extra
passes offers n x (repeats + 1) samples an epoch and needs at least E, since all ranks draw the same bucket in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.dealing import dealing_of
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oarlock_api.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one optimizer step takes: `accumulation` micro-batches of each rank, or `micro_batches` dealt to all of them."""

    per_rank: int
    ranks: int
    accumulation: int
    ranks_per_node: int = 8
    """The most that a node has."""
    micro_batches: int | None = None
    """Of all ranks, where the job has it so (effectiveBatch). A rank computes `accumulation` of them at most."""

    @property
    def effective(self) -> int:
        """Samples in one optimizer step."""
        return self.per_rank * (self.micro_batches or self.ranks * self.accumulation)

    @property
    def fields(self) -> dict[str, int]:
        """How the samples are cut into micro-batches, as fields of spec.training."""
        cut = {"batchSize": self.per_rank}
        return cut if self.micro_batches else cut | {"gradientAccumulation": self.accumulation}

    @property
    def settings(self) -> str:
        """The same in words."""
        return " with ".join(f"{field} {value}" for field, value in self.fields.items())

    def __str__(self) -> str:
        return f"effective batch {self.effective} = {self.product}"

    @property
    def product(self) -> str:
        """What the samples of a step are made of, in words."""
        if self.micro_batches and self.micro_batches % self.ranks:
            return (
                f"{self.per_rank} per micro-batch x {self.micro_batches} micro-batches, at most {self.accumulation} on each "
                f"of {self.ranks} GPUs"
            )
        return f"{self.per_rank} per GPU x {self.ranks} GPUs x {self.accumulation} accumulation"


def batch_of(training: Training, *, ranks: int, ranks_per_node: int) -> Batch:
    """What a step of the job takes on so many ranks. Raises ConfigurationError where it cannot be dealt to them."""
    dealing = dealing_of(training, ranks)
    return Batch(
        per_rank=training.batch_size,
        ranks=ranks,
        accumulation=dealing.passes,
        ranks_per_node=ranks_per_node,
        micro_batches=dealing.micro_batches if training.effective_batch else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSize:
    """One bucket of one dataset: `pictures` of aspect `aspect` (width / height), seen `repeats` + 1 times an epoch.

    Of videos a picture is one of so many `frames`.
    """

    dataset: str
    aspect: float
    pictures: int
    repeats: int
    frames: int = 1

    def __str__(self) -> str:
        frames = f"x{self.frames}" if self.frames > 1 else ""
        return f"{self.aspect:.2f}{frames}"

    @property
    def samples(self) -> int:
        """Samples that one epoch offers."""
        return self.pictures * (self.repeats + 1)


def least_repeats(pictures: int, effective: int) -> int:
    """Extra passes with which `pictures` fill one optimizer step."""
    return max(-(-effective // pictures) - 1, 0)


def fit(buckets: Sequence[BucketSize], batch: Batch, *, repeat_small: bool) -> list[BucketSize]:
    """Give every bucket the passes that it needs.

    With `repeat_small`, a bucket without repeats of its own gets the least number that fills a step.
    Raises ConfigurationError that lists all failing buckets of all datasets and what mends them.
    """
    fitted = [
        replace(bucket, repeats=least_repeats(bucket.pictures, batch.effective))
        if repeat_small and bucket.repeats == 0 and bucket.samples < batch.effective
        else bucket
        for bucket in buckets
    ]
    if any(bucket.samples < batch.effective for bucket in fitted):
        raise ConfigurationError(_explain(fitted, batch, repeat_small=repeat_small))
    return fitted


def _explain(buckets: Sequence[BucketSize], batch: Batch, *, repeat_small: bool) -> str:
    return "\n".join(
        _explain_dataset(
            name, [bucket for bucket in buckets if bucket.dataset == name], batch, repeat_small=repeat_small
        )
        for name in sorted({bucket.dataset for bucket in buckets if bucket.samples < batch.effective})
    )


def _explain_dataset(name: str, buckets: Sequence[BucketSize], batch: Batch, *, repeat_small: bool) -> str:
    failing = [bucket for bucket in buckets if bucket.samples < batch.effective]
    plural = "buckets hold" if len(buckets) > 1 else "bucket holds"
    lines = [
        f'dataset "{name}": {len(failing)} of {len(buckets)} aspect {plural} less than one optimizer step.',
        f"  {batch}",
        "  aspect   pictures   passes   samples   missing   repeats needed",
    ]
    lines += [
        f"  {bucket!s:<8} {bucket.pictures:<10} {bucket.repeats + 1:<8} {bucket.samples:<9} "
        f"{batch.effective - bucket.samples:<9} {least_repeats(bucket.pictures, batch.effective)}"
        for bucket in failing
    ]
    remedies = "; ".join(_remedies(buckets, batch, repeat_small=repeat_small))
    return "\n".join([*lines, f"Any of these mends it: {remedies}."])


def _remedies(buckets: Sequence[BucketSize], batch: Batch, *, repeat_small: bool) -> Iterator[str]:
    """Changes that each fill a step from every bucket of the dataset."""
    failing = [bucket for bucket in buckets if bucket.samples < batch.effective]
    yield from _smaller_steps(min(bucket.samples for bucket in failing), batch)
    worst = min(failing, key=lambda bucket: bucket.pictures)
    needed = least_repeats(worst.pictures, batch.effective)
    yield f"repeats: {needed}"
    if repeat_small:
        yield "no repeats of its own, so that data.smallBuckets: Repeat applies"
    else:
        alone = " and no repeats of its own" if worst.repeats else ""
        yield f"data.smallBuckets: Repeat{alone} ({worst} is then seen {needed + 1} times an epoch)"
    if len(buckets) > 1 and sum(bucket.samples for bucket in buckets) >= batch.effective:
        yield (
            "a larger video.frameInterval"
            if len({bucket.frames for bucket in buckets}) > 1
            else "crop to fewer aspects"
        )
    yield "more pictures"


def _smaller_steps(samples: int, batch: Batch) -> Iterator[str]:
    """The largest steps that `samples` fill, by one number of the batch, or else by two."""
    if batch.micro_batches:
        if samples >= batch.per_rank * batch.ranks:
            yield f"effectiveBatch {samples // batch.per_rank * batch.per_rank}"
        return
    size = samples // (batch.ranks * batch.accumulation)
    times = samples // (batch.ranks * batch.per_rank)
    if size:
        yield f"batchSize {size}"
    if times:
        yield f"gradientAccumulation {times}"
    both = samples // batch.ranks
    if both and not size and not times:
        yield f"batchSize {both} with gradientAccumulation 1"
    if ranks := samples // (batch.per_rank * batch.accumulation):
        nodes, gpus = layout(ranks, batch)
        many = f"{nodes * gpus} GPU{'s' if nodes * gpus > 1 else ''}"
        yield f"at most {many} (nodes: {nodes} with gpusPerNode: {gpus})"


def layout(most: int, batch: Batch) -> tuple[int, int]:
    """(nodes, GPUs of each): the most ranks up to `most` on nodes as the batch has them, on the fewest of equals."""
    nodes = -(-batch.ranks // batch.ranks_per_node)
    found = ((number, min(most // number, batch.ranks_per_node)) for number in range(1, min(nodes, most) + 1))
    return max(found, key=lambda one: one[0] * one[1])
