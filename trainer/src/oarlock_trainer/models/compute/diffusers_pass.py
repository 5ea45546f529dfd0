"""A transformer's forward pass as diffusers has it, of which the first blocks keep no activations.

diffusers' models call their blocks by way of `_gradient_checkpointing_func` while gradients are wanted and
`gradient_checkpointing` is on. That function is set here: it recomputes as many blocks as were asked for, and calls the
others as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.compute.recompute import call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


def install(transformer: Any, blocks: Sequence[nn.Module], *, recomputed: int) -> None:
    """Set `transformer.forward`, whose `recomputed` may be set later; `blocks` are all, in the order of the pass."""
    transformer.forward = DiffusersPass(transformer, blocks, recomputed=recomputed)


class DiffusersPass:
    """Takes the place of the model's `forward`, with its arguments and results."""

    def __init__(self, transformer: Any, blocks: Sequence[nn.Module], *, recomputed: int) -> None:
        self._forward = transformer.forward
        self._numbers = {id(block): number for number, block in enumerate(blocks)}
        self.recomputed = recomputed
        transformer.gradient_checkpointing = True
        vars(transformer)["_gradient_checkpointing_func"] = self._call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The model's result."""
        return self._forward(*arguments, **named)

    def _call(self, block: nn.Module, *arguments: Any) -> Any:
        return call(block, *arguments, recomputed=self._numbers[id(block)] < self.recomputed)
