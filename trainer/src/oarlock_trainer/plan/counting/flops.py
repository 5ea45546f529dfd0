"""FLOPs of one pass, by torch's own count: products with weights and attention, multiply-add as 2, nothing pointwise.

Attention's backward pass is counted as its kernels compute it: five products, of which one is a forward product once more,
where the forward pass has two.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from oarlock_trainer.plan.counting.calls import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from oarlock_trainer.plan.counting.calls import Call

_ATTENTION = "scaled_dot_product"


@dataclass(frozen=True, slots=True)
class Flops:
    """Of one pass. Matrices: products with weights; attention: of queries with keys, and of weights with values."""

    matrices: int
    attention: int


@dataclass(frozen=True, slots=True)
class Both:
    """A forward and a backward pass."""

    forward: Flops
    backward: Flops


@dataclass(frozen=True, slots=True)
class Passes(Both):
    """A block's."""

    frozen: Flops
    """The backward pass of frozen weights: gradients of what goes from block to block alone."""


def flops_of(block: nn.Module, call: Call) -> Passes:
    """Count one block, with what it is called with. No gradient stays."""
    both = flops_of_both(block, *call.leaves())
    with _frozen(block):
        frozen = flops_of_both(block, *call.leaves(frozen=True)).backward
    return Passes(both.forward, both.backward, frozen)


def flops_of_both(module: nn.Module, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Both:
    """Of a forward pass, and of a backward pass with a gradient for each of its results. No gradient stays."""
    with FlopCounterMode(display=False) as forward:
        result = module(*positional, **named)
    results = [one for one in tensors(result) if one.requires_grad]
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(results, [torch.ones_like(one) for one in results])
    module.zero_grad(set_to_none=True)
    return Both(_by_kind(forward), _by_kind(backward))


def _by_kind(counter: FlopCounterMode) -> Flops:
    total = counter.get_flop_counts().get("Global", {})
    attention = sum(count for operator, count in total.items() if _ATTENTION in str(operator))
    return Flops(sum(total.values()) - attention, attention)


@contextmanager
def _frozen(block: nn.Module) -> Iterator[None]:
    block.requires_grad_(requires_grad=False)
    try:
        yield
    finally:
        block.requires_grad_(requires_grad=True)
