"""A data set in pieces: each becomes one part of the table, whoever makes it, so that rows have one order for any ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oarlock_trainer.data.metadata.rows import PictureRows


@dataclass(frozen=True, slots=True)
class Piece:
    """`identity` says what it is made from: another identity, other pictures. About so many pictures are in it."""

    identity: str
    pictures: int


class Pieces(Protocol):
    """Where the pictures of a data set are found: by listing its source, or in a table."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """All pieces, in order. Every rank sees the same."""
        ...

    @property
    def groups(self) -> Sequence[range]:
        """Numbers of pieces that one rank should read together."""
        ...

    def read(self, group: int, wanted: Sequence[int], on: Callable[[int], None]) -> Iterator[tuple[int, PictureRows]]:
        """The wanted pieces of a group, with their numbers; `on` is told how many pictures were looked at meanwhile."""
        ...
