"""What the training loop and the checkpoints need of an engine, whichever way it spreads the work over ranks.

An engine's state is told as logical tensors that do not depend on the number of ranks: for each trained parameter the
slots "master" (its float32 value) and what the optimizer keeps for it ("exp_avg", ...), each flattened; and what the
optimizer keeps as a whole, under a name of its own. A rank keeps runs of their elements, its parts. So any number of ranks,
and any engine, can go on from what another one saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

MASTER = "master"
AVERAGE = "ema"
"""Slot of the moving average, where the job asks for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlice:
    """A run of elements of one logical tensor: `slot` of the parameter `name`, from element `start` on.

    `values` (length,) is the engine's state itself, float32 or bfloat16, or a float32 copy where the engine keeps it in
    another form. Checkpoints hold float32.
    """

    name: str
    slot: str
    start: int
    values: Tensor


class Engine(Protocol):
    """A model on all ranks, trained together."""

    @property
    def model(self) -> nn.Module:
        """To be called in the forward pass."""

    @property
    def weights(self) -> nn.Module:
        """The module that is trained itself."""

    def backward(self, loss: Tensor) -> None:
        """Add a micro-batch's gradients to those of the optimizer step, whose mean is over all passes of all ranks."""

    def step(self, learning_rate: float) -> None:
        """Count a micro-batch; the last one of an optimizer step clips and updates."""

    def gradient_norm(self) -> float | None:
        """Global norm of the last update before clipping; None where there is none."""

    @property
    def rate_factor(self) -> float:
        """What the optimizer multiplies the schedule's rate by: Prodigy's newest estimate, of others 1."""

    @property
    def skipped(self) -> int:
        """Updates that were left out in this process's life, because a gradient was not finite."""

    def parts(self) -> Sequence[TensorSlice]:
        """This rank's state. All ranks' together hold each element of each slot exactly once."""

    @property
    def updates(self) -> int:
        """How many updates the optimizer has counted: what Adam corrects its averages by."""

    def refresh(self) -> None:
        """All masters of `parts` were overwritten: bring the weights that the model computes with in line. Collective."""

    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        """All values of `parts` were overwritten: take them and `updates` over, and bring the model's weights in line.

        Collective.
        """
