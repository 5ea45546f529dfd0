"""What is told to the pod itself alone: figures from memory, pictures from the output. Bounded, whatever lies there.

Only names that a picture can have are opened, and only regular files. Four answers at once read the output: a storage that
hangs keeps these four, and everybody else hears 503 soon, while /healthz and /status go on.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from oarlock_api.contract.pictures import FOLDER, INDEX, MOST_INDEX, MOST_PICTURE, is_picture
from oarlock_api.contract.reads import FIGURES_PATH, PICTURES_PATH, figures_body
from oarlock_api.contract.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from oarlock_trainer.agent.status.recent_figures import RecentFigures

_AT_ONCE = 4
_WAIT_SECONDS = 2.0
"""For one of the others' end: a gallery asks for many pictures at once."""
_PIECE = 64 * 1024
_TYPES = {".png": "image/png", ".jpg": "image/jpeg"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of HTTP. `pieces` are `length` bytes in all, or fewer where the file shrinks meanwhile."""

    code: int
    content_type: str
    length: int
    pieces: Iterable[bytes]


class FromWithin:
    """`output` is the job's output directory. Any thread may ask."""

    def __init__(self, output: Path, recent: RecentFigures, *, attempt: int) -> None:
        self._folder = output / FOLDER
        self._recent = recent
        self._attempt = attempt
        self._readers = threading.BoundedSemaphore(_AT_ONCE)

    @staticmethod
    def has(path: str) -> bool:
        """Whether a path, without its query, is one of these."""
        return path == FIGURES_PATH or path.startswith(PICTURES_PATH)

    @contextmanager
    def answer(self, target: str) -> Iterator[Answer]:
        """What is at a path with its query; its pieces can be had until the end of the block."""
        with ExitStack() as held:
            path, _, query = target.partition("?")
            yield self._figures(query) if path == FIGURES_PATH else self._file(path.removeprefix(PICTURES_PATH), held)

    def _figures(self, query: str) -> Answer:
        since = parse_qs(query[:256]).get("since", [""])[0]
        step = int(since) if since.isascii() and since.isdecimal() and len(since) < 19 else -1
        body = figures_body(self._attempt, self._recent.since(step)).encode()
        return Answer(200, "application/json", len(body), [body])

    def _file(self, file: str, held: ExitStack) -> Answer:
        if file != INDEX and not is_picture(file):
            return _words(404, f"no picture has such a name: {PICTURES_PATH}{INDEX} has all of them")
        if not self._readers.acquire(timeout=_WAIT_SECONDS):
            return _words(503, "others read the output's storage just now: ask again")
        held.callback(self._readers.release)
        most = MOST_INDEX if file == INDEX else MOST_PICTURE
        try:
            opened, size = held.enter_context(open_regular(self._folder / file))
        except FileNotFoundError:
            return _words(404, "the output does not have it")
        except OSError as error:
            return _words(503, f"it cannot be read: {error.strerror}")
        if size > most:
            return _words(413, f"it has {size} bytes; {most} are read at most")
        return Answer(200, _TYPES.get(file[-4:], "application/json"), size, _pieces(opened, size))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(_PIECE, size))):
        size -= len(piece)
        yield piece


def _words(code: int, text: str) -> Answer:
    body = f"{text}\n".encode()
    return Answer(code, "text/plain", len(body), [body])
