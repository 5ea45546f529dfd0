"""Random horizontal flips: which samples show the mirrored picture.

The latents of a mirrored picture are not the picture's latents mirrored, since the VAE treats left and right differently.
So both are encoded, and each has an entry of its own (data.entries).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.runtime.draws import Purpose, generator

if TYPE_CHECKING:
    from collections.abc import Sequence


def flips(seed: int, indices: Sequence[int]) -> np.ndarray:
    """(n,) bool: which samples, by their global index as in runtime.draws, show the mirrored picture: each with 1/2."""
    return np.array([generator(seed, Purpose.FLIP, index).random() < 0.5 for index in indices], dtype=bool)
