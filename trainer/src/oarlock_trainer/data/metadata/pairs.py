"""The pairs of pictures: each the one of the same name below a source of their own, whatever the two files end in.

A picture without its pair is one that cannot be used. Whether a pair can be read is seen when it is encoded, as with the
pixels of pictures: a scan only lists.
"""

from __future__ import annotations

from dataclasses import replace
from posixpath import splitext
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oarlock_trainer.data.metadata import keys
from oarlock_trainer.data.metadata.facts import Bad
from oarlock_trainer.data.metadata.pieces import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oarlock_api.dataset import ConditioningKind
    from oarlock_trainer.data.metadata.listing import Stems
    from oarlock_trainer.data.metadata.pieces import Pieces
    from oarlock_trainer.data.metadata.rows import PictureRows


class Paired:
    """Pieces of a data set whose pictures get their pairs by one listing of these; another listing makes other pieces."""

    def __init__(self, pieces: Pieces, pairs: Stems, *, kind: ConditioningKind, where: str) -> None:
        """`where` is the place of the pairs, for people."""
        self._pieces, self._pairs = pieces, pairs
        self._kind, self._where = kind.lower(), where
        self.pieces = [Piece(keys.digest(one.identity, pairs.identity), one.pictures) for one in pieces.pieces]
        self.groups = pieces.groups

    def read(self, group: int, wanted: Sequence[int], on: Callable[[int], None]) -> Iterator[tuple[int, PictureRows]]:
        """The wanted pieces of a group, without pictures that have no pair."""
        for number, found in self._pieces.read(group, wanted, on):
            yield number, self._paired(found)

    def _paired(self, found: PictureRows) -> PictureRows:
        stems = [splitext(name)[0] for name in found.names.to_pylist()]
        names, versions = self._pairs.complete(pa.array(stems, pa.string()))
        there = names.is_valid()
        lacking = [
            Bad(
                name,
                f"without {self._kind}",
                f"no {self._kind}: {self._where} has no picture {splitext(name)[0]}.png, nor one with another ending; add "
                "it, or remove the picture",
            )
            for name in found.names.filter(pc.invert(there)).to_pylist()
        ]
        return replace(
            found.taken(there.to_numpy(zero_copy_only=False)),
            pairs=(names.filter(there), versions.filter(there)),
            bad=(*found.bad, *lacking),
        )
