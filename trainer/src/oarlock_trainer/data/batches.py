"""From the order of samples to the micro-batches of a rank.

Slot s of a step's E samples belongs to micro-batch s // batchSize, which is dealt to a rank (runtime.dealing). What is
drawn for a sample depends on its global index alone (runtime.draws), never on the rank that computes it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from oarlock_api.dataset import Role
from oarlock_trainer.data.flips import flips
from oarlock_trainer.data.grouping import group
from oarlock_trainer.data.pair_sizes import pictures_of
from oarlock_trainer.data.row_latents import RowLatents, bfloat16
from oarlock_trainer.models.families import family_of, masks_text
from oarlock_trainer.models.objective import schedule
from oarlock_trainer.models.objective.loss import MicroBatch
from oarlock_trainer.runtime.dealing import dealing_of
from oarlock_trainer.runtime.draws import Purpose, SampleDraws, sample_draws
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oarlock_api.training import Training
    from oarlock_trainer.data.buckets import Size
    from oarlock_trainer.data.embedding_index import EmbeddingIndex
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.prepared import Prepared
    from oarlock_trainer.data.row_latents import Encoding, Shown
    from oarlock_trainer.data.timeline import Timeline
    from oarlock_trainer.runtime.job import RankInfo

_THREADS = 8
"""Reads in flight per rank: enough to hide a network's latency behind a step, few enough for eight ranks on a node."""

_LEAST_TEXT = 2
"""Tokens of a masked text, with its padding: for a size of one, as of a caption left out, torch compiles a graph apart."""


class TextEncoding(Protocol):
    """Makes the embeddings of captions that have none in the cache."""

    def encode(self, captions: Sequence[str]) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        """(pooled vector, sequence) of each caption."""
        ...


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one rank computes in one optimizer step. `tokens` are image and text tokens of one sample.

    `weights` of the micro-batches in the mean over all that all ranks compute; of one that counts elsewhere already, 0.
    `regularizes`: all of it, on every rank, is of a dataset with role Regularization.
    """

    epoch: int
    micro_batches: list[MicroBatch]
    weights: list[float]
    tokens: int
    text_share: float
    """Of these, the text's."""
    regularizes: bool


class Loader:
    """Reads and draws a rank's part of each optimizer step."""

    def __init__(
        self,
        prepared: Prepared,
        buckets: Sequence[Bucket],
        order: Timeline,
        *,
        training: Training,
        rank_info: RankInfo,
        encoding: Encoding,
        pin: bool,
        text: TextEncoding | None = None,
    ) -> None:
        """`encoding` is for datasets that are not encoded beforehand; `pin` puts batches where GPUs copy from.

        `text` is for captions where `prepared` has no embeddings of them.
        """
        self._prepared = prepared
        self._buckets = buckets
        self._order = order
        self._training = training
        self._family = family_of(training.model)
        self._rank_info = rank_info
        self._dealing = dealing_of(training, rank_info.world_size)
        self._encoding = encoding
        self._pin = pin
        self._text_encoding = text
        # Most tables have one caption a picture: the caption's number is then the row's.
        many = prepared.empty_text > len(prepared.table)
        self._ends = np.cumsum(prepared.table.caption_counts()).astype(np.uint32) if many else None
        self._moved = 0.0
        workers = training.data.tuning.workers
        threads = max(workers // rank_info.local_world_size, 1) if workers else _THREADS
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="samples")
        self._latents = RowLatents(prepared, training, encoding, self._pool)

    @property
    def moved(self) -> float:
        """When something was last read, on the monotonic clock."""
        return max(self._moved, self._latents.moved)

    def close(self) -> None:
        """Stop reading."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._encoding.close()

    def step(self, step: int) -> StepBatch:
        """This rank's micro-batches of one optimizer step."""
        drawn = self._order.at(step)
        bucket = self._buckets[drawn.bucket]
        size, micro_batches = self._training.batch_size, []
        for number in self._dealing.share(self._rank_info.rank):
            first = number * size
            rows = bucket.rows[drawn.pictures[first : first + size]]
            indices = range(index := step * len(drawn.pictures) + first, index + size)
            mirrored = self._mirrored(bucket.dataset, indices)
            rows, shown = self._filled(bucket, rows, mirrored)
            micro_batches.append(
                self._micro_batch(rows, shown, mirrored, indices, purpose=Purpose.SAMPLE, size=bucket.size)
            )
        one, idle = micro_batches[0], self._dealing.passes - len(micro_batches)
        weights = [self._dealing.weight] * len(micro_batches) + [0.0] * idle
        dataset = self._training.data.datasets[bucket.dataset]
        image_tokens = self._tokens(one.latents, bucket.size) * pictures_of(dataset, self._training.model)
        tokens = image_tokens + one.text.shape[1]
        micro_batches += micro_batches[-1:] * idle
        return StepBatch(
            drawn.epoch, micro_batches, weights, tokens, one.text.shape[1] / tokens, dataset.role is Role.REGULARIZATION
        )

    def evaluation(self) -> Iterator[tuple[int, MicroBatch]]:
        """(dataset, micro-batch): this rank's share of the datasets with role Evaluation.

        A picture gets the same noise every time, so that losses at different steps compare.
        """
        size, ranks, dealt = self._training.batch_size, self._rank_info.world_size, 0
        for dataset, shape, rows in group(self._prepared.table, self._training, {Role.EVALUATION}):
            # Dealt on from bucket to bucket: many small ones would else all fall to the first ranks.
            mine = rows[(self._rank_info.rank - dealt) % ranks :: ranks]
            dealt += len(rows)
            for start in range(0, len(mine), size):
                some = mine[start : start + size]
                as_it_is = np.zeros(len(some), dtype=bool)
                found = zip(some.tolist(), self._latents.of(dataset, some, as_it_is), strict=True)
                usable = [(row, shown) for row, shown in found if shown is not None]
                if usable:
                    judged, made = zip(*usable, strict=True)
                    mirrored = np.zeros(len(judged), dtype=bool)
                    batch = self._micro_batch(
                        np.array(judged), made, mirrored, judged, purpose=Purpose.EVALUATION, size=shape
                    )
                    yield dataset, batch

    def _mirrored(self, dataset: int, indices: Sequence[int]) -> np.ndarray:
        """(n,) bool: which samples show the mirrored picture."""
        if not self._training.data.datasets[dataset].random_flip:
            return np.zeros(len(indices), dtype=bool)
        return flips(self._training.seed, indices)

    def _filled(self, bucket: Bucket, rows: np.ndarray, mirrored: np.ndarray) -> tuple[np.ndarray, list[Shown]]:
        """Rows and pictures of a micro-batch. In the place of one that cannot be used stands the next of its bucket.

        So whoever computes the sample takes the same one, and no rank has to ask another.
        """
        rows, shown = rows.copy(), self._latents.of(bucket.dataset, rows, mirrored)
        for _ in bucket.rows:
            empty = [place for place, found in enumerate(shown) if found is None]
            if not empty:
                break
            rows[empty] = bucket.rows[(np.searchsorted(bucket.rows, rows[empty]) + 1) % len(bucket.rows)]
            for place, found in zip(empty, self._latents.of(bucket.dataset, rows[empty], mirrored[empty]), strict=True):
                shown[place] = found
        filled = [found for found in shown if found is not None]
        if len(filled) < len(shown):
            raise ConfigurationError(
                f'dataset "{self._training.data.datasets[bucket.dataset].name}": of the {len(bucket.rows)} pictures that are '
                f"trained at {bucket.size} none can be used: mend or remove them (they are "
                "listed below .oarlock/quarantine in the output)"
            )
        return rows, filled

    def _micro_batch(
        self,
        rows: np.ndarray,
        shown: Sequence[Shown],
        mirrored: np.ndarray,
        indices: Sequence[int],
        *,
        purpose: Purpose,
        size: Size,
    ) -> MicroBatch:
        objective = self._training.objective
        shape = tuple(shown[0].latents.shape)
        draws = list(self._pool.map(lambda index: sample_draws(self._training.seed, index, shape, purpose), indices))
        dropout = objective.caption_dropout if purpose is Purpose.SAMPLE else 0.0
        captions = [
            self._caption(int(row), draw, dropout, mirrored=bool(flip))
            for row, draw, flip in zip(rows, draws, mirrored, strict=True)
        ]
        texts = self._texts(rows, captions)
        tokens = self._tokens(shown[0].latents, size)
        masked = masks_text(self._training)
        text = torch.nn.utils.rnn.pad_sequence([sequence for _, sequence in texts], batch_first=True)
        if masked and text.shape[1] < _LEAST_TEXT:
            text = torch.nn.functional.pad(text, (0, 0, 0, _LEAST_TEXT - text.shape[1]))
        batch = MicroBatch(
            latents=torch.stack([one.latents for one in shown]),
            noise=torch.from_numpy(np.stack([draw.noise for draw in draws])),
            text=text,
            pooled=torch.stack([pooled for pooled, _ in texts]),
            sigmas=_floats(
                schedule.noise_level(objective, draw, image_tokens=tokens, automatic=self._family.shift)
                for draw in draws
            ),
            guidance=_floats(schedule.guidance(objective, draw) for draw in draws),
            text_mask=_mask([len(sequence) for _, sequence in texts], text.shape[1]) if masked else None,
            loss_mask=_stacked([one.mask for one in shown]),
            reference=_stacked([one.reference for one in shown]),
        )
        return batch.pinned() if self._pin else batch

    def _tokens(self, latents: torch.Tensor, size: Size) -> int:
        """Of one sample of this size in pixels, without a reference. A video's latents stand one frame behind the other."""
        height, width = latents.shape[-2:]
        grid = self._family.grid
        return grid.latent_frames(size.frames) * (height * width // grid.patch**2)

    def _texts(self, rows: np.ndarray, captions: Sequence[int]) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        """(pooled vector, sequence) of the caption of each row, by its place: from the cache, or encoded now."""
        places = self._prepared.texts
        if places is not None:
            return list(self._pool.map(partial(self._text, places), captions))
        if self._text_encoding is None:
            raise RuntimeError("captions have no embeddings, and nobody to encode them")
        encoded = self._text_encoding.encode(list(map(self._words, rows.tolist(), captions)))
        self._moved = time.monotonic()
        return encoded

    def _text(self, places: EmbeddingIndex, caption: int) -> tuple[torch.Tensor, torch.Tensor]:
        values, (tokens, width, pooled_width) = places.read(caption)
        self._moved = time.monotonic()
        record = bfloat16(values)
        return record[:pooled_width], record[pooled_width:].reshape(tokens, width)

    def _words(self, row: int, caption: int) -> str:
        """A caption of a row by its place."""
        if caption == self._prepared.empty_text:
            return ""
        return self._prepared.table.picture(row).captions[caption - self._first(row)]

    def _first(self, row: int) -> int:
        """Place of a row's first caption."""
        return row if self._ends is None else int(self._ends[row - 1]) if row else 0

    def _caption(self, row: int, draws: SampleDraws, dropout: float, *, mirrored: bool) -> int:
        """Place of the caption that a sample gets: one of the picture's, or the empty one where it is left out.

        Where texts are encoded beside references it is that of the row's own, shown as the picture is.
        """
        number = None if draws.dropout < dropout else self._drawn(row, draws)
        if self._prepared.seen:
            return self._prepared.seen.place(row, number, mirrored=mirrored)
        return self._prepared.empty_text if number is None else self._first(row) + number

    def _drawn(self, row: int, draws: SampleDraws) -> int:
        """Number of a caption among its row's."""
        return 0 if self._ends is None else int(draws.caption * (int(self._ends[row]) - self._first(row)))


def _floats(values: object) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.float32)  # type: ignore[call-overload]


def _stacked(pairs: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """One tensor of all; None where the data set has no such pairs."""
    found = [pair for pair in pairs if pair is not None]
    return torch.stack(found) if found else None


def _mask(lengths: Sequence[int], longest: int) -> torch.Tensor:
    return torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
