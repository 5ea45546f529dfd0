"""Tensors in batches of bounded size: enough for a GPU's full bandwidth, and no temporary as large as a shard of billions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Iterable, Iterator

    from torch import Tensor

PIECE = 64 << 20
"""Elements of a temporary, 256 MiB of float32."""

Row = tuple["Tensor", ...]
"""A parameter, its gradient and what is kept for it, or the same run of elements of each."""


class Optimizer(Protocol):
    """One of ours, which makes its state itself."""

    state: defaultdict[Tensor, Any]

    def init_state(self, parameter: Tensor) -> None:
        """Make the state of a parameter that has not been updated yet."""


def with_gradients(optimizer: Optimizer, group: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor, dict[str, Any]]]:
    """Each parameter of a group that has a gradient, the gradient, and its state, which is made where there is none yet."""
    for parameter in group["params"]:
        if parameter.grad is not None:
            if not optimizer.state[parameter]:
                optimizer.init_state(parameter)
            yield parameter, parameter.grad, optimizer.state[parameter]


def batches(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Rows in batches of up to `most` elements; large flat ones are cut, others stay whole."""
    batch: list[Row] = []
    room = most
    for row in rows:
        cut = row[0].ndim == 1
        for piece in zip(*(torch.split(tensor, most) for tensor in row), strict=True) if cut else (row,):
            if batch and piece[0].numel() > room:
                yield batch
                batch, room = [], most
            batch.append(piece)
            room -= piece[0].numel()
    if batch:
        yield batch


def columns(batch: Iterable[Row]) -> list[list[Tensor]]:
    """A batch's rows as lists: all parameters, all gradients, ..."""
    return [list(column) for column in zip(*batch, strict=True)]
