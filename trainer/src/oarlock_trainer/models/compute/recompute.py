"""Which blocks keep no activations, but compute them once more in the backward pass.

The first k blocks of the forward pass are recomputed. The others, which the backward pass reaches first, free what they
kept before the first of these is computed again: the peak is k block inputs, one block's activations, and the others'.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def call(block: nn.Module, *arguments: Any, recomputed: bool) -> Any:
    """The block's result; `recomputed` blocks keep only their arguments for the backward pass: (B, T + N, d) in all."""
    if not (recomputed and torch.is_grad_enabled()):
        return block(*arguments)
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415 - brings torch's compiler with it

    # Reentrant checkpoints and compiled blocks do not go together.
    return checkpoint(block, *arguments, use_reentrant=False)


@contextmanager
def of_all_blocks(transformer: Any) -> Iterator[None]:
    """Within it each block of a transformer is recomputed: the least memory that a step can take."""
    forward = transformer.forward
    before, forward.recomputed = forward.recomputed, sys.maxsize
    try:
        yield
    finally:
        forward.recomputed = before
