"""Whether every bucket can fill an optimizer step, and how often its samples have to be seen for that.

Effective batch E = batchSize x ranks x gradientAccumulation. A bucket of n pictures with `repeats` extra passes offers
n x (repeats + 1) samples an epoch and needs at least E, since all ranks draw the same bucket in one optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one optimizer step takes."""

    per_rank: int
    ranks: int
    accumulation: int

    @property
    def effective(self) -> int:
        """Samples in one optimizer step."""
        return self.per_rank * self.ranks * self.accumulation

    def __str__(self) -> str:
        return (
            f"effective batch {self.effective} = {self.per_rank} per GPU x {self.ranks} GPUs x "
            f"{self.accumulation} accumulation"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSize:
    """One bucket of one dataset: `pictures` of aspect `aspect` (width / height), seen `repeats` + 1 times an epoch."""

    dataset: str
    aspect: float
    pictures: int
    repeats: int

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
        _explain_dataset(name, [bucket for bucket in buckets if bucket.dataset == name], batch, repeat_small)
        for name in sorted({bucket.dataset for bucket in buckets if bucket.samples < batch.effective})
    )


def _explain_dataset(name: str, buckets: Sequence[BucketSize], batch: Batch, repeat_small: bool) -> str:  # noqa: FBT001
    failing = [bucket for bucket in buckets if bucket.samples < batch.effective]
    plural = "buckets hold" if len(buckets) > 1 else "bucket holds"
    lines = [
        f'dataset "{name}": {len(failing)} of {len(buckets)} aspect {plural} less than one optimizer step.',
        f"  {batch}",
        "  aspect   pictures   passes   samples   missing   repeats needed",
    ]
    lines += [
        f"  {bucket.aspect:<8.2f} {bucket.pictures:<10} {bucket.repeats + 1:<8} {bucket.samples:<9} "
        f"{batch.effective - bucket.samples:<9} {least_repeats(bucket.pictures, batch.effective)}"
        for bucket in failing
    ]
    return "\n".join([*lines, f"Any of these mends it: {'; '.join(_remedies(failing, batch, repeat_small))}."])


def _remedies(failing: Sequence[BucketSize], batch: Batch, repeat_small: bool) -> list[str]:  # noqa: FBT001
    remedies = []
    least = min(bucket.samples for bucket in failing)
    if batch.per_rank > 1:
        smaller = replace(batch, per_rank=_most(least, batch.ranks * batch.accumulation))
        remedies.append(f"batchSize {smaller.per_rank}{_still_missing(failing, smaller)}")
    if batch.accumulation > 1:
        smaller = replace(batch, accumulation=_most(least, batch.ranks * batch.per_rank))
        remedies.append(f"gradientAccumulation {smaller.accumulation}{_still_missing(failing, smaller)}")
    if batch.ranks > 1 and (ranks := least // (batch.per_rank * batch.accumulation)):
        remedies.append(f"at most {ranks} GPU{'s' if ranks > 1 else ''}")
    worst = min(failing, key=lambda bucket: bucket.pictures)
    needed = least_repeats(worst.pictures, batch.effective)
    remedies.append(f"repeats: {needed}")
    if repeat_small:
        remedies.append("no repeats of its own, so that data.smallBuckets: Repeat applies")
    else:
        remedies.append(f"data.smallBuckets: Repeat ({worst.aspect:.2f} is then seen {needed + 1} times an epoch)")
    return [*remedies, "crop to fewer aspects", "more pictures"]


def _most(samples: int, others: int) -> int:
    """The largest factor with which `samples` fill a step, at least 1; `others` is what it is multiplied with."""
    return max(samples // others, 1)


def _still_missing(failing: Sequence[BucketSize], batch: Batch) -> str:
    missing = [
        f"{bucket.aspect:.2f} still misses {batch.effective - bucket.samples}"
        for bucket in failing
        if bucket.samples < batch.effective
    ]
    return f" (then {', '.join(missing)})" if missing else ""
