"""Captions, references -> text embeddings: each reference is read, cut as its picture is, and shown to the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING

from oarlock_trainer.data.shards import Shard
from oarlock_trainer.preprocess.latents import READS, Task, decoded, readable
from oarlock_trainer.preprocess.text import values
from oarlock_trainer.runtime.stages import PipelineStage, Stages, ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    import numpy as np

    from oarlock_trainer.data.progress import Progress
    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.models.family_code import SeeingEncoder
    from oarlock_trainer.preprocess.storing import Storing


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTask(Task):
    """One caption to encode beside its reference, which is the task's picture; `key` is that of the text."""

    key: bytes
    caption: str


def encode_seen_captions(
    tasks: Iterable[SeenTask],
    encoder: SeeingEncoder,
    out: Storing,
    *,
    batch_size: int,
    threads: int,
    progress: Progress,
    bound: Callable[[Sequence[tuple[int, Rejected]]], None],
    go_on: Callable[[], None],
) -> list[tuple[int, Rejected]]:
    """As encode_pictures; a record is as of encode_captions, without padding."""
    reading, decoding, encoding = (
        PipelineStage("read", max(threads, READS)),
        PipelineStage("decode", threads),
        PipelineStage("encode", 1),
    )
    rejected: list[tuple[int, Rejected]] = []

    def start(task: SeenTask) -> Future[np.ndarray]:
        content = reading.submit(task.source.read, task.picture.file)
        return decoding.submit(decoded, task.picture, task.cut, task.pair, after=[content])

    stages = (reading, decoding, encoding, *out.stages)
    with progress.over(stages), Stages(stages, making=3):
        started = ahead(tasks, start, limit=2 * (threads + batch_size))
        for _, members in groupby(started, key=lambda one: one[0].unit):
            shard = Shard()
            while batch := list(islice(members, batch_size)):
                go_on()
                store = batch[0][0].store
                seen = readable(batch, rejected, go_on)
                bound(rejected)
                if seen:
                    with encoding.working():
                        made = encoder.encode([task.caption for task, _ in seen], [pixels for _, pixels in seen])
                    records = []
                    for (task, _), sequence, vector, length in zip(seen, *made, strict=True):
                        shape = (length, sequence.shape[1], len(vector))
                        records.append(out.pack(task.key, shape, partial(values, vector, sequence[:length])))
                    out.put(shard, records)
                progress.advance(len(batch))
            out.publish(shard, store)
        out.drain()
    return sorted(rejected)
