"""Lion, the optimizer whose steps are signs (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms").

It keeps one float32 moment where Adam keeps two. The update works on pieces of bounded size: on a flat shard of billions
of elements a temporary as large as the shard would cost what the second moment saves.

DeepSpeed's kernels, for the CPU and (`options.fused`) for GPUs, differ in one thing: where the direction is exactly 0, as of
an element that never had a gradient, they take it for negative and add the learning rate. Here its sign is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from oarlock_trainer.engine import pieces
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from oarlock_trainer.engine.pieces import Row

_FUSED_ELEMENTS = 2**31 - 1
"""What DeepSpeed's kernel counts elements of a tensor in: an int of 32 bits."""


def one_moment(parameter: Tensor, step: Any) -> dict[str, Any]:
    """The state of a parameter before its first update: what each of the three Lions reads and writes."""
    return {"step": step, "exp_avg": torch.zeros_like(parameter)}


class Lion(Optimizer):
    """Sign of the interpolated moment, with decoupled weight decay."""

    def __init__(self, params: Iterable[Any], *, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        """`betas`: shares of the moment in the update, and in the next moment."""
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def init_state(self, parameter: Tensor) -> None:
        """Make the state of a parameter that has not been updated yet."""
        self.state[parameter] = one_moment(parameter, torch.tensor(0.0))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the closure is torch's, for line searches
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise TypeError("Lion takes no closure: it updates once a step")
        for group in self.param_groups:
            triples = []
            for parameter, gradient, state in pieces.with_gradients(self, group):
                state["step"] += 1
                triples.append((parameter, gradient, state["exp_avg"]))
            for batch in pieces.batches(triples, pieces.PIECE):
                _update(batch, rate=group["lr"], betas=group["betas"], weight_decay=group["weight_decay"])


def make_offloaded_lion(
    groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], weight_decay: float
) -> Optimizer:
    """DeepSpeed's Lion for the node's processors; its operator must be there.

    By itself it would keep a second moment that nothing reads, as large as the first: the state is made before it can.
    """
    from deepspeed.ops.lion import DeepSpeedCPULion  # noqa: PLC0415 - its import reads the environment

    optimizer: Optimizer = DeepSpeedCPULion(groups, lr=lr, betas=betas, weight_decay=weight_decay)

    def make_states(one: Optimizer, _args: Any, _kwargs: Any) -> None:
        for group in one.param_groups:
            for parameter in group["params"]:
                if not one.state[parameter]:
                    one.state[parameter] = one_moment(parameter, 0)

    optimizer.register_step_pre_hook(make_states)
    return optimizer


def make_fused_lion(
    groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], weight_decay: float
) -> Optimizer:
    """DeepSpeed's Lion in one kernel, for shards on a GPU; its operator must be there."""
    from deepspeed.ops.lion import FusedLion  # noqa: PLC0415 - its import reads the environment

    optimizer: Optimizer = FusedLion(groups, lr=lr, betas=betas, weight_decay=weight_decay)

    def check_sizes(one: Optimizer, _args: Any, _kwargs: Any) -> None:
        largest = max((parameter.numel() for group in one.param_groups for parameter in group["params"]), default=0)
        if largest > _FUSED_ELEMENTS:
            raise ConfigurationError(
                f"training.optimizer.options.fused: a GPU's share has {largest} elements, and the kernel counts to "
                f"{_FUSED_ELEMENTS}: use more GPUs, or remove options.fused"
            )

    optimizer.register_step_pre_hook(check_sizes)
    return optimizer


def _update(batch: Sequence[Row], *, rate: float, betas: tuple[float, float], weight_decay: float) -> None:
    """Rows of (parameter, gradient, moment), all float32. The directions are the only temporary. Waits for nothing."""
    parameters, gradients, moments = pieces.columns(batch)
    directions = torch._foreach_lerp(moments, gradients, 1.0 - betas[0])  # noqa: SLF001 - torch's own name for it
    torch._foreach_sign_(directions)
    torch._foreach_mul_(parameters, 1.0 - rate * weight_decay)
    torch._foreach_add_(parameters, directions, alpha=-rate)
    torch._foreach_lerp_(moments, gradients, 1.0 - betas[1])
