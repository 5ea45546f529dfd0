"""From the order of samples to the micro-batches of a rank, made one step ahead in the background.

Slot s of a step's E samples belongs to micro-batch s // (batchSize x ranks), rank (s // batchSize) % ranks. What is
drawn for a sample depends on its global index alone (data.draws), never on the rank that computes it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from oarlock_trainer.data.draws import SampleDraws, sample_draws
from oarlock_trainer.data.sampler import Order, Origin, Stream
from oarlock_trainer.models.flux import schedule
from oarlock_trainer.models.flux.loss import MicroBatch
from oarlock_trainer.plan.batches import Batch, BucketSize, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.job import Place
    from oarlock_trainer.preprocess.pipeline import Prepared

_TORCH_BITS = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Bucket:
    """Pictures of one dataset and one size; `samples` of them an epoch."""

    dataset: str
    size: Size
    rows: np.ndarray
    samples: int


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one rank computes in one optimizer step. `tokens` are image and text tokens of one sample."""

    epoch: int
    micro_batches: list[MicroBatch]
    tokens: int


def make_buckets(pictures: Sequence[Picture], training: Training, batch: Batch) -> list[Bucket]:
    """Group the table by dataset and size, and give every bucket its passes.

    Raises ConfigurationError that lists all buckets that cannot fill a step.
    """
    members: dict[tuple[int, Size], list[int]] = {}
    place_of = {dataset.name: number for number, dataset in enumerate(training.data.datasets)}
    for row, picture in enumerate(pictures):
        members.setdefault((place_of[picture.dataset], picture.target), []).append(row)
    sizes = [
        BucketSize(
            dataset=training.data.datasets[place].name,
            aspect=size.aspect,
            pictures=len(rows),
            repeats=training.data.datasets[place].repeats,
        )
        for (place, size), rows in sorted(members.items())
    ]
    fitted = fit(sizes, batch, repeat_small=training.data.small_buckets == "Repeat")
    return [
        Bucket(size.dataset, target, np.array(rows, dtype=np.int64), size.samples)
        for ((_, target), rows), size in zip(sorted(members.items()), fitted, strict=True)
    ]


def make_order(buckets: Sequence[Bucket], *, seed: int, effective: int, origin: Origin | None) -> Order:
    """The order of all steps over these buckets."""
    streams = [Stream(len(bucket.rows), bucket.samples) for bucket in buckets]
    return Order(streams, seed=seed, effective=effective, origin=origin)


class Loader:
    """Reads and draws a rank's part of each optimizer step."""

    def __init__(
        self, prepared: Prepared, buckets: Sequence[Bucket], order: Order, training: Training, place: Place
    ) -> None:
        """Resolves all keys to places in the shards once: 16 bytes a picture."""
        self._prepared = prepared
        self._buckets = buckets
        self._order = order
        self._training = training
        self._place = place
        pictures = prepared.pictures
        self._text_rows = prepared.stores.texts.find(picture.text_key for picture in pictures)
        self._empty_row = int(prepared.stores.texts.find([prepared.empty_text_key])[0])
        self._latent_rows = np.empty(len(pictures), dtype=np.int64)
        for name, reader in prepared.stores.latents.items():
            mine = [row for row, picture in enumerate(pictures) if picture.dataset == name]
            self._latent_rows[mine] = reader.find(pictures[row].image_key for row in mine)

    def step(self, step: int) -> StepBatch:
        """This rank's micro-batches of one optimizer step."""
        drawn = self._order.at(step)
        bucket = self._buckets[drawn.bucket]
        size, ranks = self._training.batch_size, self._place.world_size
        micro_batches = []
        for micro in range(self._training.gradient_accumulation):
            first = (micro * ranks + self._place.rank) * size
            slots = range(first, first + size)
            rows = bucket.rows[drawn.pictures[first : first + size]]
            indices = [step * len(drawn.pictures) + slot for slot in slots]
            micro_batches.append(self._micro_batch(bucket.dataset, rows, indices))
        one = micro_batches[0]
        tokens = one.latents.shape[-1] * one.latents.shape[-2] // 4 + one.text.shape[1]
        return StepBatch(drawn.epoch, micro_batches, tokens)

    def _micro_batch(self, dataset: str, rows: np.ndarray, indices: Sequence[int]) -> MicroBatch:
        objective = self._training.objective
        latents = [self._latents(dataset, row) for row in rows]
        draws = [sample_draws(self._training.seed, index, tuple(latents[0].shape)) for index in indices]
        texts = [self._text(row, draw) for row, draw in zip(rows, draws, strict=True)]
        tokens = latents[0].shape[-1] * latents[0].shape[-2] // 4
        return MicroBatch(
            latents=torch.stack(latents),
            noise=torch.from_numpy(np.stack([draw.noise for draw in draws])),
            text=torch.nn.utils.rnn.pad_sequence([sequence for _, sequence in texts], batch_first=True),
            pooled=torch.stack([pooled for pooled, _ in texts]),
            sigmas=_floats(schedule.noise_level(objective, draw, image_tokens=tokens) for draw in draws),
            guidance=_floats(schedule.guidance(objective, draw) for draw in draws),
            text_mask=_mask([len(sequence) for _, sequence in texts]) if objective.attention_mask else None,
        )

    def _latents(self, dataset: str, row: int) -> torch.Tensor:
        values, shape = self._prepared.stores.latents[dataset].read(int(self._latent_rows[row]))
        return _bfloat16(values).reshape(shape)

    def _text(self, row: int, draws: SampleDraws) -> tuple[torch.Tensor, torch.Tensor]:
        """(CLIP vector, T5 sequence): the empty caption's where the draw leaves the caption out."""
        dropped = draws.dropout < self._training.objective.caption_dropout
        place = self._empty_row if dropped else int(self._text_rows[row])
        values, (tokens, width, pooled_width) = self._prepared.stores.texts.read(place)
        record = _bfloat16(values)
        return record[:pooled_width], record[pooled_width:].reshape(tokens, width)


class Prefetcher:
    """Hands out steps in order; the next one is made while the present one is computed."""

    def __init__(self, loader: Loader, first: int, last: int) -> None:
        """Steps first .. last - 1. One background thread, started here: after any fork."""
        self._loader = loader
        self._last = last
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: Future[StepBatch] | None = self._submit(first)
        self._step = first

    def take(self) -> StepBatch:
        """The next step's batch; raises what reading it raised."""
        if self._next is None:
            raise IndexError(f"step {self._step} is beyond the last one, {self._last - 1}")
        batch = self._next.result()
        self._step += 1
        self._next = self._submit(self._step)
        return batch

    def close(self) -> None:
        """Stop reading."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, step: int) -> Future[StepBatch] | None:
        return self._pool.submit(self._loader.step, step) if step < self._last else None


def _bfloat16(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int16, copy=True)).view(_TORCH_BITS)


def _floats(values: object) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.float32)  # type: ignore[call-overload]


def _mask(lengths: Sequence[int]) -> torch.Tensor:
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
