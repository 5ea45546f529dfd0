"""Bounding each element of the gradients, where an engine knows norms only.

DeepSpeed hands its averaged gradients to the optimizer as float32, in every stage: there they are clipped, after the norm
that is reported was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.optim import Optimizer


def clip_values(optimizer: Optimizer, bound: float) -> None:
    """From now on bound each element of the gradients to [-bound, bound] just before an update. Waits for nothing."""

    def clip(one: Optimizer, _args: Any, _kwargs: Any) -> None:
        for group in one.param_groups:
            gradients = [parameter.grad for parameter in group["params"] if parameter.grad is not None]
            if gradients:
                torch._foreach_clamp_min_(gradients, -bound)
                torch._foreach_clamp_max_(gradients, bound)

    optimizer.register_step_pre_hook(clip)
