"""Where the elements of a model's state lie among the files of a checkpoint.

The state is logical: slots of named parameters, flattened (engine/engine.py). Each rank wrote the runs that it kept, one
after another as little-endian float32. Whoever reads asks for any run and gets the pieces of files that hold it: so the
number of ranks that read need not be the number that wrote.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oarlock_trainer.engine.engine import TensorSlice

ELEMENT = 4
"""Bytes of a float32."""


class Run(NamedTuple):
    """`length` elements of `slot` of the parameter `name`, from element `start` on."""

    name: str
    slot: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Elements of one file: `length` of them from byte `offset` on, which are the wanted run's from element `into` on."""

    file: str
    offset: int
    into: int
    length: int


def runs_of(parts: Iterable[TensorSlice]) -> tuple[Run, ...]:
    """The runs that a rank's parts are."""
    return tuple(Run(part.name, part.slot, part.start, part.values.numel()) for part in parts)


class Layout:
    """The runs of all files of a checkpoint, by what they hold."""

    def __init__(self, files: Mapping[str, Sequence[Run]]) -> None:
        """`files`: name of a file -> its runs, in the order in which they lie there."""
        self._runs: defaultdict[tuple[str, str], list[tuple[int, int, str, int]]] = defaultdict(list)
        for file, runs in files.items():
            offset = 0
            for run in runs:
                found = self._runs[run.name, run.slot]
                if run.length:  # a rank has no share of what has fewer elements than there are ranks
                    found.append((run.start, run.length, file, offset))
                offset += run.length * ELEMENT
        for found in self._runs.values():
            found.sort()

    @property
    def slots(self) -> frozenset[tuple[str, str]]:
        """All (parameter, slot) that there are."""
        return frozenset(self._runs)

    def sizes(self, slot: str) -> dict[str, int]:
        """Parameter -> elements of its `slot`."""
        return {
            name: sum(length for _, length, _, _ in runs) for (name, one), runs in self._runs.items() if one == slot
        }

    def pieces(self, wanted: Run) -> Iterator[FileSlice]:
        """The pieces that make up a run, in order.

        Raises KeyError where an element of it is in no file.
        """
        runs = self._runs.get((wanted.name, wanted.slot), [])
        at, end = wanted.start, wanted.start + wanted.length
        place = bisect_right(runs, at, key=lambda run: run[0]) - 1
        while at < end:
            if not 0 <= place < len(runs) or not runs[place][0] <= at < runs[place][0] + runs[place][1]:
                raise KeyError(f"element {at} of {wanted.slot} of {wanted.name}")
            start, count, file, offset = runs[place]
            taken = min(start + count, end) - at
            yield FileSlice(file, offset + (at - start) * ELEMENT, at - wanted.start, taken)
            at += taken
            place += 1
