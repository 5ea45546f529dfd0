"""Ends training whose steps come to nothing: losses or gradients that are not finite, so many steps in a row.

An update whose gradient is not finite on some rank is left out on all of them (engine.skipped). The loss may stay finite
all the while: then a kernel's backward pass is at fault, and GPUs would be busy for nothing until somebody looked.
"""

from __future__ import annotations

import math

BAD_STEPS = 10
"""In a row. One or two happen; after so many losses the weights are beyond recovery."""


class StepGuard:
    """Counts the bad steps of this process's life, the same ones on all ranks."""

    def __init__(self) -> None:
        self._losses = 0
        self._updates = 0
        self._skipped = 0

    def check(self, *, loss: float, skipped: int) -> None:
        """Take a step: its mean loss over all ranks, and how many updates were left out so far. Raises RuntimeError."""
        self._losses = 0 if math.isfinite(loss) else self._losses + 1
        self._updates = self._updates + 1 if skipped > self._skipped else 0
        self._skipped = skipped
        if self._losses >= BAD_STEPS:
            raise RuntimeError(f"the loss was not finite for {self._losses} steps: lower optimizer.learningRate")
        if self._updates >= BAD_STEPS:
            raise RuntimeError(
                f"{self._updates} updates in a row were left out, because a gradient was not finite, though the loss is "
                f"({loss:.4g}): set training.attention to SDPA, and if they still are, training.compile.mode to None and "
                "training.precision to BF16, so that it shows which kernel makes them; if none does, lower "
                "optimizer.learningRate"
            )
