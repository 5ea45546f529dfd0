"""What an optimizer keeps for a parameter, read and written as flat float32, whatever it is kept as.

So a checkpoint holds the same logical tensors for every optimizer of a family: AdamW goes on from what AdamW8Bit saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch.optim import Adam

from oarlock_trainer.engine.lion import Lion, one_moment

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

_OF_8_BITS = {"exp_avg": "1", "exp_avg_sq": "2"}
"""Logical name -> what bitsandbytes ends its names of the parts with."""


_ONE_MOMENT = ("Lion", "DeepSpeedCPULion", "FusedLion")
"""Classes that keep one moment. DeepSpeed's by their names: its import would cost runs that do not use it."""


class Slot(Protocol):
    """One value for each element of a parameter."""

    def __len__(self) -> int:
        """Elements."""

    def read(self, start: int, stop: int) -> Tensor:
        """Elements [start, stop) as float32, on their device; may be a view, so it is to be copied before the next update."""

    def write(self, start: int, values: Tensor) -> None:
        """Overwrite the elements from `start` on with float32 values of any device."""


class FloatSlot:
    """Values that are kept as float32."""

    def __init__(self, values: Tensor) -> None:
        """`values` of any contiguous shape are the state itself."""
        self._values = values.detach().view(-1)

    def __len__(self) -> int:
        """Elements."""
        return len(self._values)

    def read(self, start: int, stop: int) -> Tensor:
        """A view."""
        return self._values[start:stop]

    def write(self, start: int, values: Tensor) -> None:
        """Exact."""
        self._values[start : start + len(values)].copy_(values)


def slots(optimizer: Optimizer, parameter: Tensor) -> dict[str, Slot]:
    """The optimizer's values for one of its parameters by name: "exp_avg", and "exp_avg_sq" but for Lion.

    State that the first update would make is made here, so that it can be overwritten before.
    """
    state = _state(optimizer, parameter)
    if type(optimizer).__name__ in _ONE_MOMENT:
        return {"exp_avg": FloatSlot(state["exp_avg"])}
    if "state1" not in state:
        return {name: FloatSlot(state[name]) for name in _OF_8_BITS}
    if state["state1"].dtype is not torch.uint8:
        return {name: FloatSlot(state[f"state{end}"]) for name, end in _OF_8_BITS.items()}
    from oarlock_trainer.engine.adamw_8bit import QuantizedSlot  # noqa: PLC0415 - loaded already, by the optimizer

    return {
        name: QuantizedSlot(state[f"state{end}"], state[f"absmax{end}"], state[f"qmap{end}"])
        for name, end in _OF_8_BITS.items()
    }


def updates(optimizer: Optimizer, parameter: Tensor) -> int:
    """How many updates of a parameter the optimizer has counted."""
    state = optimizer.state.get(parameter)
    return int(state["step"]) if state else 0


def set_updates(optimizer: Optimizer, parameter: Tensor, count: int) -> None:
    """Let the optimizer go on after `count` updates of a parameter."""
    state = _state(optimizer, parameter)
    if isinstance(state["step"], torch.Tensor):
        state["step"].fill_(count)
    else:
        state["step"] = count


def _state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any]:
    """A parameter's state, made as the optimizer itself would make it."""
    if optimizer.state[parameter]:
        return cast("dict[str, Any]", optimizer.state[parameter])
    if isinstance(optimizer, Lion):
        optimizer.init_state(parameter)
    elif type(optimizer).__name__ in _ONE_MOMENT:
        optimizer.state[parameter] = one_moment(parameter, 0)
    elif isinstance(optimizer, Adam):
        # torch makes it in its first update only. A test compares the two.
        place = parameter.device if optimizer.defaults["fused"] else torch.device("cpu")
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=place),
            **{name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in _OF_8_BITS},
        }
    elif hasattr(optimizer, "init_state"):
        optimizer.init_state(optimizer.param_groups[0], parameter, 0, 0)
    else:  # DeepSpeed's for the CPU, which makes it in its first update too
        optimizer.state[parameter] = {
            "step": 0,
            **{name: torch.zeros_like(parameter) for name in _OF_8_BITS},
        }
    return cast("dict[str, Any]", optimizer.state[parameter])
