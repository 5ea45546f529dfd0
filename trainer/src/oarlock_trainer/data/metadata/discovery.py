"""Metadata by looking: read the header and the caption of every picture, or video, of a listed source.

Only headers are read here; a picture whose header is fine and whose pixels are not is found when it is encoded.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from PIL import Image

from oarlock_api.dataset import CaptionStrategy
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.metadata.caption_files import CaptionFileError, text_beside
from oarlock_trainer.data.metadata.captions import Wording, from_name, one_each
from oarlock_trainer.data.metadata.facts import Bad
from oarlock_trainer.data.metadata.listing import read_chunk
from oarlock_trainer.data.metadata.rows import PictureRows
from oarlock_trainer.data.picture_depth import depth_of
from oarlock_trainer.data.picture_kinds import open_picture
from oarlock_trainer.data.quarantine import UNREADABLE
from oarlock_trainer.data.video_files import video_header
from oarlock_trainer.data.video_frames import available
from oarlock_trainer.runtime.errors import StorageError, failed_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from oarlock_api.dataset import Dataset
    from oarlock_trainer.data.metadata.pieces import Piece
    from oarlock_trainer.data.video_files import VideoHeader
    from oarlock_trainer.storage.files import Files

_HEAD = 64 << 10
"""Bytes that hold the header of nearly every picture: one request. The others are opened, which takes one more and what
their format asks for."""
_ORIENTATION = 0x0112
_TURNED = frozenset({5, 6, 7, 8})
"""EXIF orientations that swap width and height."""

Item = TypeVar("Item")
Result = TypeVar("Result")
_TOGETHER = 32
"""Items that a thread takes at once: handing over costs about as much as one header."""


class _Item(NamedTuple):
    """One of a chunk: `is_text` says whether its name is one, `with_text` whether a caption file is beside it."""

    name: str
    is_text: bool
    with_text: bool


class _Look(NamedTuple):
    """What was seen of a picture or a video."""

    size: Size
    text: str | None
    video: VideoHeader | None = None


class Discovered:
    """A listed source; the listing's chunks lie below `folder`."""

    def __init__(self, dataset: Dataset, files: Files, folder: Path, pieces: Sequence[Piece], *, threads: int) -> None:
        self.pieces = pieces
        self.groups = [range(number, number + 1) for number in range(len(pieces))]
        self._video = dataset.video
        self._captions = dataset.captions
        self._wording = Wording(dataset)
        self._files = files
        self._folder = folder
        self._threads = threads

    def read(self, group: int, wanted: Sequence[int], on: Callable[[int], None]) -> Iterator[tuple[int, PictureRows]]:
        """Raises ConfigurationError at the first picture that may not be read: it is not damaged, and seldom the only one."""
        del group  # each holds one piece
        for number in wanted:
            chunk = read_chunk(self._folder, self.pieces[number])
            named, captioned = (chunk[column].is_valid().to_pylist() for column in ("version", "caption"))
            items = list(map(_Item, chunk["name"].to_pylist(), named, captioned))
            looks = in_threads(self._look, items, threads=self._threads, on=on)
            seen = [look for look in looks if not isinstance(look, Bad)]
            fine = pa.array([not isinstance(look, Bad) for look in looks], pa.bool_())
            yield (
                number,
                PictureRows(
                    names=chunk["name"].filter(fine).combine_chunks(),
                    versions=chunk["version"].filter(fine).combine_chunks(),
                    width=np.array([one.size.width for one in seen], dtype=np.int64),
                    height=np.array([one.size.height for one in seen], dtype=np.int64),
                    frames=self._frames(seen),
                    captions=one_each(pa.array([one.text for one in seen], pa.string()), self._wording),
                    bad=tuple(look for look in looks if isinstance(look, Bad)),
                ),
            )

    def _frames(self, seen: Sequence[_Look]) -> np.ndarray | None:
        if self._video is None:
            return None
        headers = [one.video for one in seen if one.video]
        frames = np.array([one.frames for one in headers], dtype=np.float64)
        rates = np.array([one.rate for one in headers], dtype=np.float64)
        return available(frames, rates, self._video.fps)

    def _look(self, item: _Item) -> _Look | Bad:
        name, is_text, with_text = item
        if not is_text:
            return Bad(name, "with a name that is not UTF-8", "its name is not UTF-8: rename it, as with convmv")
        try:
            if self._video:
                found = video_header(self._files, name)
                return _Look(found.size, self._text(name, with_text=with_text), found)
            return _Look(header(self._files, name), self._text(name, with_text=with_text))
        except UNREADABLE as error:
            return unreadable(name, error)

    def _text(self, name: str, *, with_text: bool) -> str | None:
        if self._captions.strategy is CaptionStrategy.FIXED:
            return self._captions.text
        if self._captions.strategy is CaptionStrategy.FILENAME:
            return from_name(name)
        return text_beside(self._files, name) if with_text else None


def header(files: Files, name: str) -> Size:
    """Size of a picture as it is shown. Raises what UNREADABLE lists where it is none."""
    try:
        return _shown(io.BytesIO(files.read(name, 0, _HEAD)))
    except UNREADABLE:
        with files.open(name) as file:
            return _shown(file)


def unreadable(name: str, error: Exception) -> Bad:
    """What a file is that cannot be read. Raises StorageError where it is the storage that fails, and not the file."""
    if failed_reading(error):
        raise StorageError(f"reading {name}: {error}") from error
    if isinstance(error, CaptionFileError):
        return Bad(name, "with an unreadable caption", str(error))
    return Bad(name, "unreadable", f"unreadable: {error}")


def _shown(file: BinaryIO) -> Size:
    with open_picture(file) as picture:
        depth_of(picture)  # which may refuse it
        width, height = picture.size
        # Pillow has turned the size of a TIFF. PNG's own getexif() would decode the whole picture to look behind it too.
        if picture.format != "TIFF" and Image.Image.getexif(picture).get(_ORIENTATION) in _TURNED:
            width, height = height, width
    return Size(width, height)


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, threads: int, on: Callable[[int], None]
) -> list[Result]:
    """The results in the order of the items; `on` is told of items that are done, and may raise to stop."""
    results: list[Result] = []
    shares = [items[start : start + _TOGETHER] for start in range(0, len(items), _TOGETHER)]
    pool = ThreadPoolExecutor(threads, thread_name_prefix="scan")
    try:
        for some in pool.map(lambda share: [work(item) for item in share], shares):
            results += some
            on(len(some))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return results
