"""A trained module's weights, whole, whichever engine has it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from oarlock_trainer.engine.sharded import is_sharded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


def whole_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Each parameter by its name, whole, one at a time: a sharded one is gone when the next is asked for.

    Collective where weights are sharded: every rank goes through all of them.
    """
    for name, weight in model.named_parameters():
        if is_sharded(weight):
            import deepspeed  # noqa: PLC0415 - loaded already, by the engine

            gathered = deepspeed.zero.GatheredParameters([weight])
        else:
            gathered = nullcontext()
        with gathered:
            yield name, weight.detach()
