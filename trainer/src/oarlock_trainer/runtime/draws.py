"""Every random number of training, as a pure function of (seed, what it is for, where it stands).

Nothing depends on the state of a generator or on the number of ranks: sample g of a run gets the same noise whoever
computes it and whenever it is computed again. So a resumed run repeats the losses of an undisturbed one exactly.
numpy's Philox is counter-based and stable across platforms and versions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Separates the streams of one seed."""

    ORDER = 1
    SCHEDULE = 2
    SAMPLE = 3
    MIXTURE = 4
    EVALUATION = 5
    DROPOUT = 6
    FLIP = 7
    ROUNDING = 8


def generator(seed: int, purpose: Purpose, *place: int) -> np.random.Generator:
    """A generator of its own for one purpose and place (such as bucket and pass, or global sample index)."""
    text = ",".join(str(part) for part in (seed, int(purpose), *place))
    key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


@dataclass(frozen=True, slots=True)
class SampleDraws:
    """The random numbers of one sample of one optimizer step.

    `normal` ~ N(0, 1) and `uniform` ~ U(0, 1) choose the noise level, `guidance` ~ U(0, 1) the guidance value,
    `dropout` ~ U(0, 1) whether the caption is left out, `caption` ~ U(0, 1) which of several it is; `noise` (channels,
    height, width) float32 ~ N(0, 1). `more` is the key of what only some jobs draw.
    """

    normal: float
    uniform: float
    guidance: float
    dropout: float
    caption: float
    noise: np.ndarray
    more: int = 0

    def beta(self, alpha: float, beta: float) -> float:
        """~ Beta(alpha, beta): the same number each time."""
        return float(np.random.Generator(np.random.Philox(key=self.more)).beta(alpha, beta))


def sample_draws(seed: int, index: int, shape: tuple[int, ...], purpose: Purpose = Purpose.SAMPLE) -> SampleDraws:
    """Draw for the global sample index `index` = step x effective batch + slot; in evaluation it is the table's row."""
    source = generator(seed, purpose, index)
    normal = float(source.standard_normal())
    uniform, guidance, dropout = (float(value) for value in source.random(3))
    noise = source.standard_normal(shape, dtype=np.float32)
    caption = float(source.random())
    return SampleDraws(normal, uniform, guidance, dropout, caption, noise, more=int(source.integers(2**63)))
