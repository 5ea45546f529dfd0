"""Which pods train in the next round of a gang, and which place each of them has. Pure.

A round has the places 0..size-1. Whoever is there keeps its place, as what its node has in memory is of that place. A vacant
one goes to the pod of that rank if it is there, else to the lowest that has none: to a spare, most often. Where too few
pods are there, and the gang is elastic, the round is smaller: as large as the steps can be dealt. Its places are closed up
in order.

Place 0 is always rank 0's: that pod leads, so it is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

MOST_RUNS = 48
"""Runs that a round's members may be: those of 23 places that others hold than their own pods, and a line still fits."""


def runs(ranks: Iterable[int]) -> list[list[int]]:
    """The same numbers in their order as runs of consecutive ones: the first of each, and how many they are."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([rank, 1])
    return found


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Of one gang of `nodes` places and `spares` more pods. `least`: the fewest nodes that it trains with.

    Where `least` is less than `nodes` the gang is elastic: `can_be_dealt` says with how many nodes the training is the same,
    and so many seconds of `patience` are given to those that lack before a round is smaller than it could be.
    """

    nodes: int
    spares: int = 0
    least: int = 0
    patience: float = math.inf
    can_be_dealt: Callable[[int], bool] = bool

    @property
    def pods(self) -> int:
        """All that there are, of ranks 0..pods-1."""
        return self.nodes + self.spares

    @property
    def own(self) -> tuple[int, ...]:
        """The members of a round in which each place is that of its own pod: as it is at the start."""
        return tuple(range(self.nodes))

    @property
    def elastic(self) -> bool:
        """Whether a round may have fewer members than `nodes`."""
        return 0 < self.least < self.nodes

    @property
    def smallest(self) -> int:
        """Fewer pods than these are no round."""
        return self.least if self.elastic else self.nodes

    @property
    def is_fixed(self) -> bool:
        """Whether every round has all pods."""
        return not self.elastic and not self.spares

    def largest(self, pods: int) -> int:
        """The size of a round that so many pods can be chosen for; 0 where they are too few."""
        if pods >= self.nodes:
            return self.nodes
        return next((size for size in range(pods, self.smallest - 1, -1) if self.can_be_dealt(size)), 0)

    def chosen(self, there: Collection[int], before: Sequence[int]) -> tuple[int, ...]:
        """The pods of the next round by place, of these that are there; none where they are too few.

        `before` are those of the round that ended, empty where that is not known.
        """
        size = self.largest(len(there))
        own = self.own if size == self.nodes else sorted(there)[:size]
        if len(before) == size and len(runs(kept := _filled(before, there))) <= MOST_RUNS:
            return kept
        return _filled(own, there)


def _filled(places: Sequence[int], there: Collection[int]) -> tuple[int, ...]:
    """These pods by place, and others that are there instead of those that are not."""
    held = {place: rank for place, rank in enumerate(places) if rank in there}
    free = sorted(set(there) - set(held.values()))
    vacant = [place for place in range(len(places)) if place not in held]
    for place in sorted(vacant, key=lambda place: place not in free):  # those whose own pod is free come first
        held[place] = free.pop(free.index(place) if place in free else 0)
    return tuple(held[place] for place in range(len(places)))
