"""Prodigy (Mishchenko and Defazio 2023, "An Expeditiously Adaptive Parameter-Free Learner"): AdamW that finds its rate.

It estimates d, how far the weights are from where they should be, and steps by d times the learning rate, which therefore
is 1. d is a quotient of two sums over all parameters: so an instance must have all of them, and no rank a share.

A test compares the numbers with those of the authors' prodigyopt 1.1.2. That one reads two numbers of every tensor back in
every step, and so waits for the GPU 1700 times where adapters stand beside all of FLUX.1's layers; this one reads back once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from oarlock_trainer.engine import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from oarlock_trainer.engine.pieces import Row

_KEPT = ("s", "p0", "exp_avg", "exp_avg_sq")


class Prodigy(Optimizer):
    """AdamW's update with moments of d x gradient, and decoupled weight decay."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        d0: float = 1e-6,
        d_coef: float = 1.0,
        bias_correction: bool = False,
        safeguard_warmup: bool = False,
    ) -> None:
        """Names as in prodigyopt. `lr` must be the same in all groups: only `weight_decay` may differ."""
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "k": 0, "d": d0, "d_numerator": 0.0})
        self._betas, self._eps = betas, eps
        self._d0, self._d_coef = d0, d_coef
        self._bias_correction, self._safeguard_warmup = bias_correction, safeguard_warmup

    def init_state(self, parameter: Tensor) -> None:
        """Make the state of a parameter that has not been updated yet: where it started is a part of it."""
        zeros = {name: torch.zeros_like(parameter) for name in _KEPT}
        self.state[parameter] = zeros | {"p0": parameter.detach().clone()}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the closure is torch's, for line searches
        """Update every parameter that has a gradient. At a rate of 0, as a warm-up begins, nothing is learnt of d."""
        if closure is not None:
            raise TypeError("Prodigy takes no closure: it updates once a step")
        first = self.param_groups[0]
        rate, d, (beta1, beta2) = first["lr"], first["d"], self._betas
        first_updates = first["k"]
        for group in self.param_groups:
            group["k"] += 1
        if not rate:
            return
        corrected = math.sqrt(1 - beta2 ** (first_updates + 1)) / (1 - beta1 ** (first_updates + 1))
        stepped = d * rate * (corrected if self._bias_correction else 1.0)
        beta3 = math.sqrt(beta2)
        grown, total = self._learn(d, stepped, beta3)
        if not total:
            return
        numerator = beta3 * first["d_numerator"] + d / self._d0 * stepped * grown
        found = max(d, self._d_coef * numerator / total)
        for group in self.param_groups:
            group["d"], group["d_numerator"] = found, numerator
            for batch in pieces.batches(self._rows(group), pieces.PIECE):
                parameters, _, _, _, averages, squares = pieces.columns(batch)
                roots = torch._foreach_sqrt(squares)  # noqa: SLF001 - torch's names for kernels over lists
                torch._foreach_add_(roots, found * self._eps)
                torch._foreach_mul_(parameters, 1.0 - stepped * group["weight_decay"])
                torch._foreach_addcdiv_(parameters, averages, roots, value=-stepped)

    def _learn(self, d: float, stepped: float, beta3: float) -> tuple[float, float]:
        """Take the gradients into what is kept; returns the sums of gradient x (start - parameter), and of |s|."""
        beta1, beta2 = self._betas
        weight = d / self._d0 * (d if self._safeguard_warmup else stepped)
        products: list[Tensor] = []
        sizes: list[Tensor] = []
        for group in self.param_groups:
            for batch in pieces.batches(self._rows(group), pieces.PIECE):
                parameters, gradients, s, starts, averages, squares = pieces.columns(batch)
                ways = torch._foreach_sub(starts, parameters)  # noqa: SLF001
                products += [torch.dot(*both) for both in zip(map(_flat, gradients), map(_flat, ways), strict=True)]
                torch._foreach_mul_(averages, beta1)
                torch._foreach_add_(averages, gradients, alpha=d * (1.0 - beta1))
                torch._foreach_mul_(squares, beta2)
                torch._foreach_addcmul_(squares, gradients, gradients, value=d * d * (1.0 - beta2))
                torch._foreach_mul_(s, beta3)
                torch._foreach_add_(s, gradients, alpha=weight)
                sizes += torch._foreach_norm(s, 1)  # noqa: SLF001
        if not products:
            return 0.0, 0.0
        # Summed over tensors in float64. tolist() is where the host waits for the GPU, once in a step.
        grown, total = torch.stack([torch.stack(one).double().sum() for one in (products, sizes)]).tolist()
        return grown, total

    def _rows(self, group: dict[str, Any]) -> Iterator[Row]:
        for parameter, gradient, state in pieces.with_gradients(self, group):
            yield parameter, gradient, *(state[name] for name in _KEPT)


def _flat(values: Tensor) -> Tensor:
    return values.reshape(-1)
