"""What an optimizer keeps, for a parameter or as a whole, read and written as flat float32, whatever it is kept as.

So a checkpoint holds the same logical tensors for every optimizer of a family: AdamW goes on from what AdamW8Bit saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch.optim import Adam

from oarlock_trainer.engine import schedule_free
from oarlock_trainer.engine.adamw_8bit import QuantizedSlot
from oarlock_trainer.engine.adamw_bf16 import AdamWBF16
from oarlock_trainer.engine.lion import Lion, one_moment
from oarlock_trainer.engine.prodigy import Prodigy

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

_OF_8_BITS = {"exp_avg": "1", "exp_avg_sq": "2"}
"""Logical name -> what bitsandbytes ends its names of the parts with."""

_NUMBERS = ("d", "d_numerator", "weight_sum", "lr_max")
"""What Prodigy and schedule-free AdamW keep as a whole: in their groups, the same in all of them."""
_COUNT = "k"
"""Where an optimizer counts its updates itself, in its groups, and not for each parameter."""
_ONE_MOMENT = ("Lion", "DeepSpeedCPULion", "FusedLion")
"""Classes that keep one moment. DeepSpeed's by their names: its import would cost runs that do not use it."""


class Slot(Protocol):
    """One value for each element of a parameter."""

    def __len__(self) -> int:
        """Elements."""

    def read(self, start: int, stop: int) -> Tensor:
        """Elements [start, stop) as float32, on their device.

        It may be a view, which then is of the type that the values are kept in: to be copied before the next update.
        """

    def write(self, start: int, values: Tensor) -> None:
        """Overwrite the elements from `start` on with float32 values of any device."""


class FloatSlot:
    """Values that are kept as float32, or as bfloat16."""

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
        """Exact, where they are of the type that is kept."""
        self._values[start : start + len(values)].copy_(values)


class NumberSlot:
    """A number of the whole optimizer, to the last bit: a double is the sum of three float32."""

    def __init__(self, groups: list[dict[str, Any]], name: str) -> None:
        """The number `name` is in all `groups` of an optimizer."""
        self._groups, self._name = groups, name

    def __len__(self) -> int:
        """Elements."""
        return 3

    def read(self, start: int, stop: int) -> Tensor:
        """A copy, beside the parameters."""
        found, rest = torch.zeros(len(self)), torch.tensor(self._groups[0][self._name], dtype=torch.float64)
        for place in range(len(self)):
            found[place] = rest.float()
            rest -= found[place]
        return found[start:stop].to(self._groups[0]["params"][0].device)

    def write(self, start: int, values: Tensor) -> None:
        """Exact, once all three are written."""
        found = self.read(0, len(self)).cpu()
        found[start : start + len(values)] = values.cpu()
        for group in self._groups:
            group[self._name] = float(found.double().sum())


def numbers(optimizer: Optimizer) -> dict[str, Slot]:
    """The optimizer's values for all its parameters together, by name; most have none."""
    groups = optimizer.param_groups
    return {name: NumberSlot(groups, name) for name in _NUMBERS if name in groups[0]}


def slots(optimizer: Optimizer, parameter: Tensor) -> dict[str, Slot]:
    """The optimizer's values for one of its parameters by name, such as "exp_avg".

    State that the first update would make is made here, so that it can be overwritten before.
    """
    state = _state(optimizer, parameter)
    if "state1" not in state:
        return {name: FloatSlot(values) for name, values in state.items() if name != "step"}
    if state["state1"].dtype is not torch.uint8:
        return {name: FloatSlot(state[f"state{end}"]) for name, end in _OF_8_BITS.items()}
    return {
        name: QuantizedSlot(state[f"state{end}"], state[f"absmax{end}"], state[f"qmap{end}"])
        for name, end in _OF_8_BITS.items()
    }


def updates(optimizer: Optimizer, parameter: Tensor) -> int:
    """How many updates of a parameter the optimizer has counted."""
    if _COUNT in optimizer.param_groups[0]:
        return int(optimizer.param_groups[0][_COUNT])
    state = optimizer.state.get(parameter)
    return int(state["step"]) if state else 0


def set_updates(optimizer: Optimizer, parameter: Tensor, count: int) -> None:
    """Let the optimizer go on after `count` updates of a parameter."""
    if _COUNT in optimizer.param_groups[0]:
        for group in optimizer.param_groups:
            group[_COUNT] = count
        return
    state = _state(optimizer, parameter)
    if isinstance(state["step"], torch.Tensor):
        state["step"].fill_(count)
    else:
        state["step"] = count


def _state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any]:
    """A parameter's state, made as the optimizer itself would make it."""
    if optimizer.state[parameter]:
        return cast("dict[str, Any]", optimizer.state[parameter])
    if isinstance(optimizer, Lion | Prodigy | AdamWBF16):
        optimizer.init_state(parameter)
    elif "weight_sum" in optimizer.param_groups[0]:
        optimizer.state[parameter] = schedule_free.begun(parameter)
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
