"""Captions, references -> text embeddings: each reference is read, cut as its picture is, and shown to the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oarlock_trainer.preprocess.latents import Task, encode_tasks
from oarlock_trainer.preprocess.text import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    import numpy as np

    from oarlock_trainer.data.progress import Progress
    from oarlock_trainer.data.quarantine import Rejected
    from oarlock_trainer.data.records import Record
    from oarlock_trainer.models.family_code import SeeingEncoder
    from oarlock_trainer.preprocess.latents import Working
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
    """As of encode_tasks; a record is as of encode_captions, without padding."""

    def encoded(batch: Sequence[tuple[SeenTask, np.ndarray]], working: Working) -> list[Future[Record | None]]:
        with working():
            made = encoder.encode([task.caption for task, _ in batch], [pixels for _, pixels in batch])
        return [
            out.pack(task.key, (length, sequence.shape[1], len(vector)), partial(values, vector, sequence[:length]))
            for (task, _), sequence, vector, length in zip(batch, *made, strict=True)
        ]

    return encode_tasks(
        tasks, encoded, out, [], batch_size=batch_size, threads=threads, progress=progress, bound=bound, go_on=go_on
    )
