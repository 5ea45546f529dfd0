"""What nodes tell one another in rank 0's store before they form a group: small values, by name, one for each node."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Store(Protocol):
    """torch's TCPStore, as far as it is used here."""

    def set(self, key: str, value: str, /) -> None:
        """Store a value."""

    def add(self, key: str, amount: int, /) -> int:
        """Count up, and return the count."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Values of keys that are there."""


class Meeting:
    """Node `own` of `nodes` in a store. Every call may raise what the store raises where rank 0 is gone."""

    def __init__(self, store: Store, *, own: int, nodes: int) -> None:
        self._store = store
        self._own = own
        self._nodes = nodes

    def tell(self, name: str, value: Any) -> None:
        """Tell the others this node's value of that name, once."""
        self._store.set(_key(name, self._own), json.dumps(value))
        self._store.add(name, 1)

    def is_told(self, name: str) -> bool:
        """Whether every node has told. One count is asked for, however many nodes there are."""
        return self._store.add(name, 0) >= self._nodes

    def silent(self, name: str) -> list[int]:
        """Nodes that have not told yet."""
        return [node for node in range(self._nodes) if not self._store.check([_key(name, node)])]

    def told(self, name: str) -> dict[int, Any]:
        """What the nodes that have told told."""
        silent = set(self.silent(name)) if not self.is_told(name) else set()
        nodes = [node for node in range(self._nodes) if node not in silent]
        values = self._store.multi_get([_key(name, node) for node in nodes]) if nodes else []
        return {node: json.loads(value) for node, value in zip(nodes, values, strict=True)}


def _key(name: str, node: int) -> str:
    return f"{name}/{node}"
