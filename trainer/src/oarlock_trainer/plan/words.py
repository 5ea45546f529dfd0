"""What a planned job would do, in words and one table: what `oarlock-trainer plan` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.data import TextEmbedsMode
from oarlock_trainer.plan import embeds
from oarlock_trainer.plan.text_encoders import costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.data.batch_fit import Batch
    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.models.encoded import Encoded
    from oarlock_trainer.models.family import Family

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBucket:
    """One bucket: `pictures` of one dataset and size, seen `repeats` + 1 times an epoch; a sample has `image_tokens`."""

    dataset: str
    image_tokens: int
    size: Size
    pictures: int
    repeats: int

    @property
    def samples(self) -> int:
        """Samples that one epoch offers."""
        return self.pictures * (self.repeats + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """`steps` of the whole run, 0 where nothing is trained; `epoch_steps` of an epoch, None where it has no length.

    `pictures` of all datasets are in the table, trained on or not; `stored` are those by size whose latents are kept, `pairs`
    those whose pairs are, with channels.
    """

    batch: Batch
    buckets: Sequence[PlannedBucket]
    pictures: int
    stored: Sequence[tuple[Size, int]]
    captions: int
    steps: int
    epoch_steps: int | None
    family: Family
    encoded: Encoded
    text_mode: TextEmbedsMode = TextEmbedsMode.CACHE
    pairs: Sequence[tuple[Size, int, int]] = ()
    sees: bool = False
    """Captions are counted once beside each reference, which is all done before training."""
    notes: Sequence[str] = ()

    @property
    def image_tokens(self) -> set[int]:
        """Of samples of all buckets, each number once."""
        return {bucket.image_tokens for bucket in self.buckets}

    @property
    def frames(self) -> int:
        """Of samples with the most tokens."""
        return max((bucket.image_tokens, bucket.size.frames) for bucket in self.buckets)[1]


def describe(plan: DataPlan) -> str:
    """Several lines."""
    columns = ("dataset", "size", "aspect", "pictures", "passes", "samples", "steps an epoch")
    shown = slice(None) if plan.steps else slice(4)
    rows = [
        (
            bucket.dataset,
            str(bucket.size),
            f"{bucket.size.aspect:.2f}",
            f"{bucket.pictures}",
            f"{bucket.repeats + 1}",
            f"{bucket.samples}",
            f"{bucket.samples // plan.batch.effective}",
        )
        for bucket in plan.buckets
    ]
    kept = plan.captions if plan.text_mode is TextEmbedsMode.CACHE else 0
    latents, text = embeds.total(plan.stored, kept, plan.encoded, plan.family.grid)
    stored = f"latents {bytes_of(latents)}"
    if plan.pairs:
        stored += f", masks or references {bytes_of(embeds.of_pairs(plan.pairs, plan.encoded))}"
    epochs = (
        f"{plan.epoch_steps} steps an epoch, {plan.steps / plan.epoch_steps:.1f} epochs" if plan.epoch_steps else ""
    )
    lines = [
        *([str(plan.batch), ""] if plan.steps else []),
        *_table([row[shown] for row in (columns, *rows)]),
        "",
        f"steps         {plan.steps}{f' ({epochs})' if epochs else ''}"
        if plan.steps
        else "steps         none: task: Preprocess",
        f"pictures      {plan.pictures}, captions {plan.captions}{' beside references' if plan.sees else ''}",
        f"embeddings    {stored}, text {bytes_of(text)} with padding (estimated: plan encodes nothing)",
        *([f"text          {_text(plan)}"] if plan.steps else []),
        *(f"note          {note}" for note in plan.notes),
    ]
    return "\n".join(lines) + "\n"


def _text(plan: DataPlan) -> str:
    """What each way to encode the captions would cost, the job's own first, if there is another."""
    encoder = plan.family.texts.name
    ways = costs(
        plan.family.texts, distinct=plan.captions, drawn=plan.steps * plan.batch.effective, encoded=plan.encoded
    )
    words = [
        f"{mode} {cost.flops / 1e15:.3g} PFLOP of {encoder}, {bytes_of(cost.stored) if cost.stored else 'nothing'} stored"
        for mode, cost in sorted(ways.items(), key=lambda way: way[0] is not plan.text_mode)
    ]
    return f"{'; '.join(words[:1] if plan.sees else words)} (a model)"


def bytes_of(size: int) -> str:
    """A size with three figures and its unit."""
    value, unit = float(size), _UNITS[0]
    for larger in _UNITS[1:]:
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
