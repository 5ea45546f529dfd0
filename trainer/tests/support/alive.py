"""How much memory results take while something runs, counted without any: torch's meta device will do."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Alive(TorchDispatchMode):
    """Counts the bytes of all results that are alive, and the most that were at once."""

    def __init__(self) -> None:
        super().__init__()
        self._now, self.most, self._seen = 0, 0, set[int]()

    def __torch_dispatch__(self, operation: Any, _types: Any, arguments: Any = (), named: Any = None) -> Any:
        made = operation(*arguments, **(named or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place not in self._seen:
            self._seen.add(place)
            self._now += size
            self.most = max(self.most, self._now)
            weakref.finalize(storage, self._gone, place, size)

    def _gone(self, place: int, size: int) -> None:
        self._seen.discard(place)
        self._now -= size
