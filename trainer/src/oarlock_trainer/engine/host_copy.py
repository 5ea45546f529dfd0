"""Figures that a GPU computes, on their way to the host: reading waits for what made them, not for what was asked since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class HostCopy:
    """Some numbers. The copy begins at once, behind the work that the device was given so far."""

    def __init__(self, value: Tensor) -> None:
        """`value` (n,) on any device. Waits for nothing."""
        self._value = value.detach().to("cpu", non_blocking=True)  # from a GPU into pinned memory
        self._there = torch.cuda.current_stream(value.device).record_event() if value.is_cuda else None

    def read(self) -> list[float]:
        """The numbers, once they are there."""
        if self._there is not None:
            self._there.synchronize()
        return [float(number) for number in self._value]
