"""Nodes in words: the number in the gang, and the name that people know the machine by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NAMED = 8
"""A sentence that names more is read by nobody."""


class NodeNames:
    """The names that are known so far."""

    def __init__(self, known: Mapping[int, str]) -> None:
        self._known = dict(known)

    def learn(self, more: Mapping[int, str]) -> None:
        """Take in further names; an empty one tells nothing."""
        self._known |= {node: name for node, name in more.items() if name}

    def one(self, node: int) -> str:
        """`node 2 (gpu-03)`."""
        name = self._known.get(node)
        return f"node {node} ({name})" if name else f"node {node}"

    def many(self, nodes: Iterable[int]) -> str:
        """Some nodes, the first of many."""
        return _first([self.one(node) for node in nodes], ", ")

    def pairs(self, pairs: Iterable[tuple[int, int]]) -> str:
        """Some pairs of nodes, the first of many."""
        return _first([f"{self.one(a)} and {self.one(b)}" for a, b in pairs], "; ")


def _first(words: Sequence[str], between: str) -> str:
    more = len(words) - _NAMED
    return between.join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")
