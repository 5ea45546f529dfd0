"""AdamW whose weights and moments are bfloat16, without float32 masters: 6 bytes a parameter instead of 14, with the weights.

bfloat16 has 8 bits for a number's digits. Rounded to the nearest one, an update of less than 1/512 of a weight is lost, and
most are. Here each is rounded up or down by chance, so that the mean is what float32 would have: what is too small to be
seen in a step adds up over many (Gupta et al. 2015). The arithmetic of an update is float32, in pieces.

The chances of an update are drawn from the seed and the number of the update: an interrupted run draws them anew, and all
ranks that keep the same weights draw the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from oarlock_trainer.engine import pieces
from oarlock_trainer.runtime.draws import Purpose, generator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from oarlock_trainer.engine.pieces import Row

PIECE = 16 << 20
"""Elements that are updated at once."""
TEMPORARY_BYTES = 28
"""Of such an element: weight, gradient, both moments, root and chances as float32, and their copies as bfloat16."""
_CUT = 16
"""Bits of a float32 that bfloat16 does not have."""
_KEPT = ("exp_avg", "exp_avg_sq")


class AdamWBF16(Optimizer):
    """AdamW of bfloat16 weights; of float32 ones, as adapters are, the moments alone are bfloat16."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        seed: int,
    ) -> None:
        """`seed` of the chances."""
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "k": 0})
        self._betas, self._eps, self._seed = betas, eps, seed

    def init_state(self, parameter: Tensor) -> None:
        """Make the state of a parameter that has not been updated yet."""
        self.state[parameter] = {name: torch.zeros_like(parameter, dtype=torch.bfloat16) for name in _KEPT}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the closure is torch's, for line searches
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise TypeError("AdamWBF16 takes no closure: it updates once a step")
        first = self.param_groups[0]
        drawn = generator(self._seed, Purpose.ROUNDING, first["k"]).integers(2**63)
        chances = torch.Generator(first["params"][0].device).manual_seed(int(drawn))
        for group in self.param_groups:
            group["k"] += 1
            rows = list(self._rows(group))
            for dtype in (torch.bfloat16, torch.float32):
                for batch in pieces.batches([row for row in rows if row[0].dtype is dtype], PIECE):
                    self._update(batch, group, chances)

    def _update(self, batch: Sequence[Row], group: dict[str, Any], chances: torch.Generator) -> None:
        """Rows of (parameter, gradient, two moments), flat: one float32 tensor of each, rounded when written back."""
        (beta1, beta2), rate, updates = self._betas, group["lr"], group["k"]
        kept = pieces.columns(batch)
        weights, gradients, averages, squares = (torch.cat(column).float() for column in kept)
        averages.lerp_(gradients, 1.0 - beta1)
        squares.mul_(beta2).addcmul_(gradients, gradients, value=1.0 - beta2)
        roots = (squares / (1.0 - beta2**updates)).sqrt_().add_(self._eps)
        weights.mul_(1.0 - rate * group["weight_decay"])
        weights.addcdiv_(averages, roots, value=-rate / (1.0 - beta1**updates))
        for column, values in ((kept[0], weights), (kept[2], averages), (kept[3], squares)):
            rounded = stochastically_rounded(values, chances) if column[0].dtype is torch.bfloat16 else values
            torch._foreach_copy_(column, torch.split(rounded, [one.numel() for one in column]))

    def _rows(self, group: dict[str, Any]) -> Iterator[Row]:
        """Flat, so that large ones can be cut."""
        for parameter, gradient, state in pieces.with_gradients(self, group):
            yield parameter.view(-1), gradient.reshape(-1), *(state[name].view(-1) for name in _KEPT)


def stochastically_rounded(values: Tensor, chances: torch.Generator) -> Tensor:
    """Finite float32 values as bfloat16, each one of its two neighbours: the nearer, the likelier.

    Adds a random number to the bits that are cut off: it is carried over as often as they are large.
    """
    noise = torch.randint(1 << _CUT, values.shape, generator=chances, dtype=torch.int32, device=values.device)
    bits = noise.add_(values.view(torch.int32)).bitwise_and_(-(1 << _CUT))
    return bits.view(torch.float32).to(torch.bfloat16)
