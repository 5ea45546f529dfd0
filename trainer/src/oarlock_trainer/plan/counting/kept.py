"""What a block keeps between its forward and its backward pass, as autograd saves it: eager, compiled and lean.

Each storage counts whole and once. Parameters do not; nor does what all blocks share, which the model around them keeps
anyway, nor the random state of attention's dropout. Compiled code is divided into its passes by torch's compiler as for a
GPU, but nothing is generated: the graphs run on the meta device as they are.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.plan.counting.calls import storage
from oarlock_trainer.runtime.uncompiled import bring_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from oarlock_trainer.plan.counting.calls import Call

_BACKEND = "aot_eager_decomp_partition"
"""torch's own: the decompositions and the division into passes of its compiler, and eager kernels."""
_GRAPHS = 256
_RANDOM_STATE = torch.uint64
_DISABLED = "TORCHDYNAMO_DISABLE"
"""With which torch.compile returns what it is given; a training process is started with it."""


def kept(block: nn.Module, call: Call) -> int:
    """Bytes that one call of a block keeps."""
    without = call.shared | {storage(one) for one in block.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[storage(tensor)] = tensor
        return tensor

    positional, named = call.leaves()
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        result = block(*positional, **named)
    del result
    counted = [one for place, one in saved.items() if place not in without and one.dtype != _RANDOM_STATE]
    return sum(one.untyped_storage().nbytes() for one in counted)


@contextmanager
def compiled(block: nn.Module, *, budget: float = 1.0) -> Iterator[None]:
    """Within it a block is what torch's compiler makes of it, with this activation memory budget (1: all may be kept)."""
    bring_back()
    import torch._dynamo  # noqa: PLC0415 - a second of imports
    import torch._functorch.config  # noqa: PLC0415

    torch._dynamo.reset()  # noqa: SLF001
    dynamo, functorch = torch._dynamo.config, torch._functorch.config  # noqa: SLF001
    with (
        dynamo.patch(disable=False, recompile_limit=_GRAPHS),
        functorch.patch(activation_memory_budget=budget),
    ):
        before, disabled = dict(vars(block)), os.environ.pop(_DISABLED, None)
        vars(block)["forward"] = torch.compile(block.forward, backend=_BACKEND, dynamic=False, fullgraph=True)
        try:
            yield
        finally:
            vars(block).pop("forward")
            vars(block).update(before)
            if disabled is not None:
                os.environ[_DISABLED] = disabled
            torch._dynamo.reset()  # noqa: SLF001
