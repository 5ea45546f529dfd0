"""Names without their extension, completed by what the source holds (metadata.parquet.filenameHasExtension: false)."""

from __future__ import annotations

from posixpath import splitext
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.listing import open_listed, pictures, write_listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.storage.files import Files


def write_stems(files: Files, folder: Path) -> str:
    """List a source, and keep its pictures sorted by the hash of their stem; returns its identity. One rank only.

    Of two pictures that differ in their extension alone, the first by name counts.
    """
    found = pictures(files.list())
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
