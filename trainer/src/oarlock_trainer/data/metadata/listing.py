"""What a source holds, listed once: pictures, or videos, with their versions and those of their caption files, in chunks.

    listing/<digest>.arrow    up to PART_ROWS pictures, sorted by name

Rank 0 lists and writes the chunks; the others read those that they work on. So rank 0 alone holds all names at once:
0.3 KB a picture, 0.6 KB with caption files, which is 3 to 6 GB for ten million.
"""

from __future__ import annotations

from posixpath import splitext
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.caption_files import caption_file
from oarlock_trainer.data.metadata.pieces import Piece
from oarlock_trainer.data.metadata.table import PART_ROWS
from oarlock_trainer.data.metadata.unread import unread_kinds
from oarlock_trainer.data.picture_kinds import VIDEOS, picture_endings
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_bytes
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.files import as_told, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_trainer.storage.files import FileEntry, Files


_LISTING = "listing"

_CHUNKS = 512
_FEWEST = 1024
"""A source is cut into about so many chunks of at least so many pictures: enough for every rank to have work, few enough
to open all parts in no time. The number of ranks is no part of it: the same source gives the same parts."""

_COLUMNS = ("name", "version", "caption")
"""All text; `caption` is the version of the caption file beside the picture, null where there is none. Null as `version`
says that the file cannot be named, and `name` is what people are told: see storage.files.is_text."""


def pictures(entries: Sequence[FileEntry], *, videos: bool = False) -> list[FileEntry]:
    """Those that are pictures, or that are videos, by their extension."""
    wanted = VIDEOS if videos else picture_endings()
    return [entry for entry in entries if splitext(entry.name)[1].lower() in wanted]


def write_listing(
    files: Files,
    folder: Path,
    *,
    with_captions: bool,
    videos: bool = False,
    tell: Callable[[str], None] = channel.tell,
) -> list[Piece]:
    """List a source and write its chunks below `folder`. To be called by one rank. `tell` is told of files that nobody reads.

    Raises ConfigurationError where it holds pictures instead of `videos`, or the other way round, or other files alone.
    """
    entries = files.list()
    texts = {entry.name: entry.version for entry in entries if with_captions and entry.name.endswith(".txt")}
    found = pictures(entries, videos=videos)
    if not found:
        _check_kind(files.where, len(pictures(entries, videos=not videos)), videos=videos)
    read = {entry.name for entry in found}
    read |= {caption_file(name) for name in read} & texts.keys()
    if unread := unread_kinds(entry.name for entry in entries if entry.name not in read):
        if not found:
            raise _nothing_to_read(files.where, unread, videos=videos)
        tell(f"{files.where}: files that are not read: {unread}")
    size = min(max(-(-len(found) // _CHUNKS), _FEWEST), PART_ROWS)
    return [_write_chunk(found[start : start + size], texts, folder) for start in range(0, len(found), size)]


def _check_kind(where: str, others: int, *, videos: bool) -> None:
    if others and videos:
        raise ConfigurationError(f"{where} holds {others} pictures and no videos: remove video from its data set")
    if others:
        raise ConfigurationError(
            f"{where} holds {others} videos and no pictures: set video for its data set, such as {{}}"
        )


def _nothing_to_read(where: str, unread: str, *, videos: bool) -> ConfigurationError:
    kind, endings = ("video", VIDEOS) if videos else ("picture", picture_endings())
    return ConfigurationError(
        f"{where} holds no {kind} that is read ({' '.join(sorted(endings))}), but {unread}: convert them, or correct the "
        "source"
    )


def read_chunk(folder: Path, piece: Piece) -> pa.Table:
    """name, version and caption of a chunk's pictures."""
    return open_listed(folder, piece.identity)


def write_listed(folder: Path, identity: str, table: pa.Table) -> None:
    """Publish a file of the listing."""
    path = _path(folder, identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_bytes(path, memoryview(sink.getvalue()))


def open_listed(folder: Path, identity: str) -> pa.Table:
    """A file of the listing, mapped."""
    return pa.ipc.open_file(pa.memory_map(str(_path(folder, identity)))).read_all()


def remove_listing(folder: Path) -> None:
    """Remove all files of the listing: with the parts written, nobody reads them again."""
    for path in (folder / _LISTING).glob("*"):
        path.unlink(missing_ok=True)


def _write_chunk(entries: Sequence[FileEntry], texts: dict[str, str], folder: Path) -> Piece:
    captions = [texts.get(caption_file(entry.name)) for entry in entries]
    versions = [entry.version if is_text(entry.name) else None for entry in entries]
    columns = [[as_told(entry.name) for entry in entries], versions, captions]
    piece = Piece(keys.digest(*columns), len(entries))
    if not _path(folder, piece.identity).exists():
        write_listed(folder, piece.identity, pa.table([pa.array(column, pa.string()) for column in columns], _COLUMNS))
    return piece


def _path(folder: Path, identity: str) -> Path:
    return folder / _LISTING / f"{identity}.arrow"


def write_stems(files: Files, folder: Path, *, videos: bool = False) -> str:
    """List a source, and keep its pictures sorted by the hash of their stem; returns its identity. One rank only.

    Of two pictures that differ in their extension alone, the first by name counts. One whose name is not UTF-8 is none that
    anybody asks for.
    """
    found = [entry for entry in pictures(files.list(), videos=videos) if is_text(entry.name)]
    stems = [splitext(entry.name)[0] for entry in found]
    hashes = _hashes(stems)
    order = np.argsort(hashes, kind="stable")
    columns = {
        "hash": pa.array(hashes[order]),
        "stem": pa.array([stems[place] for place in order.tolist()], pa.string()),
        "name": pa.array([found[place].name for place in order.tolist()], pa.string()),
        "version": pa.array([found[place].version for place in order.tolist()], pa.string()),
    }
    identity = keys.digest([(entry.name, entry.version) for entry in found])
    write_listed(folder, identity, pa.table(columns))
    return identity


class Stems:
    """The pictures of a source by their stem, mapped."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.identity = identity
        self._rows = open_listed(folder, identity)
        self._hashes = self._rows["hash"].to_numpy()

    def complete(self, stems: pa.Array) -> tuple[pa.Array, pa.Array]:
        """(n,) names and versions of pictures; null where the source has none of that stem."""
        wanted = _hashes(stems.to_pylist())
        places = np.searchsorted(self._hashes, wanted)
        found = self._rows.take(pa.array(places, mask=places >= len(self._hashes))).combine_chunks()
        same = pc.fill_null(pc.equal(found["stem"].combine_chunks(), stems), fill_value=False)
        nothing = pa.scalar(None, pa.string())
        names, versions = (pc.if_else(same, found[name].combine_chunks(), nothing) for name in ("name", "version"))
        return names, versions


def _hashes(stems: Sequence[str]) -> np.ndarray:
    return np.fromiter((xxh3_64_intdigest(stem.encode()) for stem in stems), np.uint64, len(stems))
