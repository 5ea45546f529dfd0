"""Rotary positions of Wan's tokens, in float32: frame, row and column, each counted from 0.

diffusers' class has them in buffers that are not saved with the weights, and so are not there in a model that was made
without memory; in a model that is rounded to bfloat16 they would be rounded, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_THETA = 10_000.0
"""Fixed in diffusers' class."""


class Positions:
    """Takes the place of the forward pass of the model's `rope`.

    The angles are computed once, on the CPU, as diffusers computes them, and copied to each device once: what a call does
    then waits for nothing.
    """

    def __init__(self, rope: Any) -> None:
        """Of diffusers' module, whose buffers are not read."""
        self._patch = rope.patch_size
        self._pairs = [axis // 2 for axis in (rope.t_dim, rope.h_dim, rope.w_dim)]
        places = torch.arange(rope.max_seq_len, dtype=torch.float64, device="cpu")
        angles = torch.cat([torch.outer(places, _frequencies(pairs)) for pairs in self._pairs], dim=1)
        self._tables = {torch.device("cpu"): torch.stack([angles.cos(), angles.sin()], dim=-1).float()}

    def __call__(self, hidden_states: Tensor) -> Tensor:
        """Latents (B, C, f, h, w) -> cosine and sine of each token: (N, D/2, 2) float32 on their device."""
        sides = [side // part for side, part in zip(hidden_states.shape[2:], self._patch, strict=True)]
        frames, rows, columns = sides
        each = self._table(hidden_states.device).split_with_sizes(self._pairs, dim=1)
        frame, row, column = (table[:side] for table, side in zip(each, sides, strict=True))
        placed = [
            frame[:, None, None].expand(-1, rows, columns, -1, -1),
            row[None, :, None].expand(frames, -1, columns, -1, -1),
            column[None, None].expand(frames, rows, -1, -1, -1),
        ]
        return torch.cat(placed, dim=3).flatten(0, 2)

    def _table(self, device: torch.device) -> Tensor:
        """(places, D/2, 2)."""
        if device not in self._tables:
            self._tables[device] = self._tables[torch.device("cpu")].to(device)
        return self._tables[device]


def _frequencies(pairs: int) -> Tensor:
    """(pairs,) float64: how far each pair of channels turns from one place to the next."""
    channels = torch.arange(0, 2 * pairs, 2, dtype=torch.float64, device="cpu")
    return 1.0 / _THETA ** (channels / (2 * pairs))
