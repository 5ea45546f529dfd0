"""Lion, the optimizer whose steps are signs (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms").

It keeps one float32 moment where Adam keeps two. The update works on pieces of bounded size: on a flat shard of billions
of elements a temporary as large as the shard would cost what the second moment saves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

_PIECE = 64 << 20
"""Elements of a temporary, 256 MiB: large enough for any GPU's full bandwidth."""

Triple = tuple["Tensor", "Tensor", "Tensor"]
"""A parameter, its gradient and its moment, or the same run of elements of each."""


class Lion(Optimizer):
    """Sign of the interpolated moment, with decoupled weight decay."""

    def __init__(self, params: Iterable[Tensor], *, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        """`betas`: shares of the moment in the update, and in the next moment."""
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def init_state(self, parameter: Tensor) -> None:
        """Make the state of a parameter that has not been updated yet."""
        self.state[parameter] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(parameter)}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the closure is torch's, for line searches
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise TypeError("Lion takes no closure: it updates once a step")
        for group in self.param_groups:
            triples = []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if not self.state[parameter]:
                    self.init_state(parameter)
                state = self.state[parameter]
                state["step"] += 1
                triples.append((parameter, parameter.grad, state["exp_avg"]))
            for batch in _batches(triples):
                _update(batch, rate=group["lr"], betas=group["betas"], weight_decay=group["weight_decay"])


def _update(triples: Sequence[Triple], *, rate: float, betas: tuple[float, float], weight_decay: float) -> None:
    parameters, gradients, moments = (list(column) for column in zip(*triples, strict=True))
    directions = torch._foreach_lerp(moments, gradients, 1.0 - betas[0])  # noqa: SLF001 - torch's own name for it
    torch._foreach_sign_(directions)
    torch._foreach_mul_(parameters, 1.0 - rate * weight_decay)
    torch._foreach_add_(parameters, directions, alpha=-rate)
    torch._foreach_lerp_(moments, gradients, 1.0 - betas[1])


def _batches(triples: Iterable[Triple]) -> Iterator[list[Triple]]:
    """Triples in batches of up to _PIECE elements; large flat ones are cut, others stay whole."""
    batch: list[Triple] = []
    room = _PIECE
    for triple in triples:
        cut = triple[0].ndim == 1
        for piece in zip(*(torch.split(tensor, _PIECE) for tensor in triple), strict=True) if cut else (triple,):
            if batch and piece[0].numel() > room:
                yield batch
                batch, room = [], _PIECE
            batch.append(piece)
            room -= piece[0].numel()
    if batch:
        yield batch
