"""What differs between the families where our forward passes are compared with diffusers': a record of each.

A new family has its own in a module beside this one, and its line in PAIRS (family_pairs.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.engine import Attention
from oarlock_trainer.models.compute.attention import attend_with
from oarlock_trainer.models.families import FAMILIES
from oarlock_trainer.models.family_codes import CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from oarlock_api.weights import ModelFamily
    from oarlock_trainer.models.family import Family
    from oarlock_trainer.models.family_code import FamilyCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and a batch for it."""

    name: str
    variant: Mapping[str, Any] = field(default_factory=dict)
    """Of the model: arguments of `make`."""
    batch: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `batch`."""
    idle: frozenset[str] = frozenset()
    """Parameters that reach no prediction of this batch: their gradients are zeros, or there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A small transformer of diffusers, made twice with the same random weights, and batches for it."""

    key: ModelFamily
    make: Callable[..., tuple[Any, Any]]
    batch: Callable[..., dict[str, Any]]
    """Arguments of diffusers' forward pass."""
    cases: tuple[Case, ...]
    usual: Case
    """Of several samples: what all other tests compare with."""
    rounded: tuple[str, ...]
    """Inputs that have the weights' type."""
    bfloat16: float
    """Relative distance of a prediction in bfloat16 from that in float32, weights and inputs being the same."""
    recomputed: tuple[int, ...]
    """Numbers of blocks; the last one is all of them."""
    adapted: tuple[str, ...]
    """Ends of names of layers that get adapters, each from another part of a block."""
    targets: tuple[str, ...] = ()
    leaves_out: bool = False
    """What is idle gets no gradient at all, and other families' zeros."""

    @property
    def family(self) -> Family:
        return FAMILIES[self.key]

    @property
    def code(self) -> FamilyCode:
        return CODES[self.key]

    @property
    def blocks(self) -> int:
        return self.recomputed[-1]

    def ours(self, model: Any, *, recomputed: int = 0) -> Any:
        """The model, with our forward pass installed."""
        self.code.install(model, attend=attend_with(Attention.SDPA), recomputed=recomputed)
        return model


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    """Of each trained parameter: zeros where it has none."""
    model.zero_grad(set_to_none=True)
    loss.backward()
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    return {name: torch.zeros_like(one) if one.grad is None else one.grad for name, one in trained.items()}
