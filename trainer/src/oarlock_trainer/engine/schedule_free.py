"""Schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled"): what is trained, and what comes of it.

Gradients are taken at y, the weights that the model has; updated is z; and what is exported is x, an average of all z that
takes the place of a schedule. y lies between the two: y = (1 - beta1) z + beta1 x. The optimizer keeps y and z, of which x
is made where it is needed: for checkpoints, from which models are exported, and for whatever judges the weights.

The library's own way to x and back, eval() and train(), rounds: weights that were looked at would go on as others. Here y is
kept meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.engine.around import Judged
from oarlock_trainer.engine.engine import AVERAGE, MASTER, TensorSlice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from oarlock_trainer.engine.engine import Engine

Z = "z"


def make_schedule_free(
    groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> Optimizer:
    """The authors' own. Its warm-up is the engine's: it weighs a step's z in the average by the rate, squared."""
    from schedulefree import AdamWScheduleFree  # noqa: PLC0415 - most jobs do not need it

    optimizer = AdamWScheduleFree(groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    optimizer.train()  # for good: what it would do with the weights is done below
    made: Optimizer = optimizer
    return made


def begun(parameter: Tensor) -> dict[str, Tensor]:
    """A parameter's state before its first update, as the library makes it then."""
    return {Z: parameter.detach().clone(), "exp_avg_sq": torch.zeros_like(parameter)}


class ScheduleFree(Judged):
    """An engine whose optimizer is schedule-free: x is the slot that is exported."""

    def __init__(self, engine: Engine, beta1: float) -> None:
        """`beta1` > 0 is the optimizer's."""
        super().__init__(engine)
        self._to_x = 1.0 - 1.0 / beta1
        """Weight of z in x = y + (z - y) (1 - 1 / beta1)."""
        self._kept: list[Tensor] = []

    def parts(self) -> Sequence[TensorSlice]:
        """The engine's, and x, a copy."""
        parts = self._engine.parts()
        return [*parts, *(replace(y, slot=AVERAGE, values=x) for y, x in self._averages(parts))]

    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        """The engine's: x follows."""
        self._engine.restored(updates, [part for part in parts if part.slot != AVERAGE])

    @torch.no_grad()
    def exchange(self) -> None:
        """Let y give way to x, or take its place again, to the last bit. Meanwhile a copy of y costs its size once more."""
        kept, self._kept = self._kept, []
        for number, (y, x) in enumerate(self._averages(self._engine.parts())):
            if kept:
                y.values.copy_(kept[number])
            else:
                self._kept.append(y.values.clone())
                y.values.copy_(x)
        self.refresh()

    def _averages(self, parts: Sequence[TensorSlice]) -> Iterator[tuple[TensorSlice, Tensor]]:
        """Each part of y, and x there."""
        z = {part.name: part.values for part in parts if part.slot == Z}
        for part in parts:
            if part.slot == MASTER:
                yield part, torch.lerp(part.values, z[part.name], self._to_x)
