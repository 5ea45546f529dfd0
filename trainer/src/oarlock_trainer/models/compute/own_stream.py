"""A GPU's stream for networks that run in another thread than training, so that neither waits for the other's kernels.

On the default stream, which all threads share, what one of them reads back waits for everything that training has queued.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.engine import own_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator


class OwnStream:
    """One stream, made when it is first needed. What it computes with must be loaded in it too. For one thread at a time."""

    def __init__(self, device: torch.device) -> None:
        """On the CPU there are no streams, and `entered` does nothing."""
        self._device = device
        self._stream: torch.cuda.Stream | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread's kernels go to the stream. What they leave on the GPU is for whoever enters it again."""
        if self._device.type != "cuda":
            yield
            return
        own_gpu.choose(self._device)  # leaving a stream goes back to one of the thread's GPU
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            yield
