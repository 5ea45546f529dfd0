"""Pictures -> latents, and their pairs, in batches of one size: read, decode and encode at the same time.

Videos are encoded one by one, and what is decoded of them ahead is bounded by its bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from threading import Event
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from oarlock_trainer.data.entries import Pair
from oarlock_trainer.data.quarantine import UNREADABLE, Rejected
from oarlock_trainer.data.shards import Shard
from oarlock_trainer.preprocess.masks import average
from oarlock_trainer.preprocess.pictures import decoded
from oarlock_trainer.preprocess.shapes import OtherShapeError, OtherSizeError
from oarlock_trainer.preprocess.videos import decode_video
from oarlock_trainer.runtime.errors import StorageError, failed_reading
from oarlock_trainer.runtime.stages import PipelineStage, Stages, ahead, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from oarlock_api.videos import Video
    from oarlock_trainer.data.buckets import Cut
    from oarlock_trainer.data.metadata.table import Picture
    from oarlock_trainer.data.progress import Progress
    from oarlock_trainer.data.records import Record
    from oarlock_trainer.models.encoders import PictureEncoder
    from oarlock_trainer.preprocess.storing import Storing
    from oarlock_trainer.storage.files import Files

    Working = Callable[[], AbstractContextManager[None]]

_READS = 8
"""Reading mostly waits, so even a rank with one thread for decoding has several for it."""
_AHEAD_BYTES = 1 << 30
"""Of pixels that are decoded and not encoded yet, or being decoded: ten videos of 81 frames of 832 x 480."""
_SOURCE_FRAMES = 8
"""That decoding holds of a video, counted at three bytes a pixel. Two are being scaled. FFmpeg keeps those that others are
made of: up to eight of VP9, sixteen of small H.264, at one and a half bytes."""
_RGB = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One picture or video to encode, or its pair of a kind: its row, where it lies, how it is cut, its unit, its store."""

    row: int
    picture: Picture
    source: Files
    cut: Cut
    unit: int
    store: Files
    pair: Pair | None = None
    video: Video | None = None
    """How frames are taken, where it is one."""

    @property
    def pixel_bytes(self) -> int:
        """Of what is decoded; of a video also what its decoder holds meanwhile."""
        size, source = self.picture.target, self.picture.size
        held = _SOURCE_FRAMES * source.width * source.height if self.video else 0
        return (size.width * size.height * size.frames + held) * _RGB


AnyTask = TypeVar("AnyTask", bound=Task)


def encode_pictures(
    tasks: Iterable[Task],
    encoder: PictureEncoder,
    out: Storing,
    *,
    batch_size: int,
    threads: int,
    progress: Progress,
    bound: Callable[[Sequence[tuple[int, Rejected]]], None] = lambda _: None,
    go_on: Callable[[], None],
) -> list[tuple[int, Rejected]]:
    """Encode pictures in batches of one size, as of `encode_tasks`; one whose latents are not finite cannot be used."""
    rejected: list[tuple[int, Rejected]] = []

    def encoded(batch: Sequence[tuple[Task, np.ndarray]], working: Working) -> list[Future[Record | None]]:
        with working():
            pictures, pixels = zip(*((task.picture, found) for task, found in batch), strict=True)
            latents = encode(pictures, pixels, encoder, batch[0][0].pair)
        return [_pack(task, latent, out, rejected) for (task, _), latent in zip(batch, latents, strict=True)]

    return encode_tasks(
        tasks,
        encoded,
        out,
        rejected,
        batch_size=batch_size,
        threads=threads,
        progress=progress,
        bound=bound,
        go_on=go_on,
    )


def encode_tasks(
    tasks: Iterable[AnyTask],
    encoded: Callable[[Sequence[tuple[AnyTask, np.ndarray]], Working], list[Future[Record | None]]],
    out: Storing,
    rejected: list[tuple[int, Rejected]],
    *,
    batch_size: int,
    threads: int,
    progress: Progress,
    bound: Callable[[Sequence[tuple[int, Rejected]]], None],
    go_on: Callable[[], None],
) -> list[tuple[int, Rejected]]:
    """Read and decode pictures while others are encoded, each unit into a shard of its own.

    `encoded` makes the records of a batch's pixels, and encodes within the context that it is given. `tasks` come in the
    order of their units. `threads` decode. `go_on` is called often, and may raise to stop, as `bound` may, which is given
    what cannot be used so far: complete units are published, the one that is not is dropped.

    Returns `rejected`, rows whose pixels cannot be used, with the reason; sorted, once all is stored.
    """
    reading, decoding, encoding = (
        PipelineStage("read", max(threads, _READS)),
        PipelineStage("decode", threads),
        PipelineStage("encode", 1),
    )

    stop = Event()

    def start(task: AnyTask) -> Future[np.ndarray]:
        if task.video:  # of whose file a part may do
            return decoding.submit(decode_video, task.source, task.picture, task.cut, task.video, stop)
        content = reading.submit(task.source.read, task.picture.file)
        return decoding.submit(decoded, task.picture, task.cut, task.pair, after=[content])

    stages = (reading, decoding, encoding, *out.stages)
    with progress.over(stages), Stages(stages, making=3), _stopping(stop):
        started = ahead(
            tasks, start, limit=2 * (threads + batch_size), weight=lambda task: task.pixel_bytes, most=_AHEAD_BYTES
        )
        for _, members in groupby(started, key=lambda one: one[0].unit):
            shard = Shard()
            for batch in _batches(members, batch_size):
                go_on()
                store = batch[0][0].store
                decodable = _readable(batch, rejected, go_on)
                bound(rejected)
                if decodable:
                    out.put(shard, encoded(decodable, encoding.working))
                progress.advance(len(batch))
            out.publish(shard, store)
        out.drain()
    return sorted(rejected)


@contextmanager
def _stopping(stop: Event) -> Iterator[None]:
    try:
        yield
    except BaseException:
        stop.set()
        raise


def encode(
    pictures: Sequence[Picture], pixels: Sequence[np.ndarray], encoder: PictureEncoder, pair: Pair | None
) -> torch.Tensor:
    """Latents of pictures or videos of one size, or of their pairs: (B, C, h, w) bfloat16. Of masks (B, 1, h, w).

    A picture's are a sample by the seed of its key, a reference's are the mean.
    """
    if pair is Pair.MASK:
        return average(np.stack(pixels), encoder.pixels)
    if pair is not None:
        return encoder.encode_reference(np.stack(pixels))
    seeds = [int.from_bytes(picture.image_key[:7], "little") for picture in pictures]
    return encoder.encode(np.stack(pixels), seeds)


def bits(tensor: torch.Tensor) -> np.ndarray:
    """The bits of a bfloat16 tensor as uint16: numpy knows no bfloat16."""
    array: np.ndarray = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return array


def is_finite(latent: torch.Tensor) -> bool:
    """Whether the VAE could encode a picture."""
    return bool(torch.isfinite(latent).all())


def unusable(picture: Picture, source: Files, error: Exception, pair: Pair | None) -> Rejected:
    """What is told of a picture that could not be read or decoded, or whose pair could not.

    Raises StorageError where it is the storage that fails, and not the picture.
    """
    if failed_reading(error):
        raise StorageError(f"reading {picture.file} in {source.where}: {error}") from error
    if pair and isinstance(error, OtherShapeError):
        what = f"its {pair.word} {picture.file} is {error}"
        return Rejected(picture.dataset, picture.name, f"with a {pair.word} of another shape", what)
    if pair:
        what = f"its {pair.word} {picture.file} is unreadable: {error}"
        return Rejected(picture.dataset, picture.name, f"with an unreadable {pair.word}", what)
    if isinstance(error, OtherSizeError):
        return Rejected(picture.dataset, picture.name, "of another size", str(error))
    return Rejected(picture.dataset, picture.name, "unreadable", f"unreadable: {error}")


def not_encodable(picture: Picture) -> Rejected:
    """What is told of a picture whose latents are not finite."""
    return Rejected(picture.dataset, picture.name, "not encodable", "the VAE gave non-finite latents")


def _batches(
    members: Iterator[tuple[AnyTask, Future[np.ndarray]]], size: int
) -> Iterator[list[tuple[AnyTask, Future[np.ndarray]]]]:
    """Of tasks of one unit: a video is one by itself, as many would not fit into the VAE."""
    for first in members:
        yield [first, *islice(members, 0 if first[0].video else size - 1)]


def _readable(
    batch: Sequence[tuple[AnyTask, Future[np.ndarray]]], rejected: list[tuple[int, Rejected]], go_on: Callable[[], None]
) -> list[tuple[AnyTask, np.ndarray]]:
    """Those of a batch whose pictures could be read and decoded; the others are added to `rejected`.

    `go_on` is called while waiting. Raises StorageError where it is the storage that fails.
    """
    found = []
    for task, future in batch:
        try:
            found.append((task, wait_for(future, go_on)))
        except UNREADABLE as error:
            rejected.append((task.row, unusable(task.picture, task.source, error, task.pair)))
    return found


def _pack(
    task: Task, latent: torch.Tensor, out: Storing, rejected: list[tuple[int, Rejected]]
) -> Future[Record | None]:
    channels, height, width = latent.shape

    def values() -> np.ndarray | None:
        if is_finite(latent):
            return bits(latent)
        rejected.append((task.row, not_encodable(task.picture)))
        return None

    return out.pack(task.picture.image_key, (channels, height, width), values)
