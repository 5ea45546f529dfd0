"""The variants of Qwen-Image."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor

_USUAL = Flavor(text_tokens=1024, steps=50, guidance=4.0, is_guided_twice=True)

FLAVORS = {ModelFlavor.V1: _USUAL, ModelFlavor.V2512: _USUAL}
"""V1 is the first one (Qwen/Qwen-Image), V2512 that of December 2025 (Qwen/Qwen-Image-2512): of one architecture. Text
tokens are the most that a caption may have with what ends its turn, and without the 34 tokens that stand before it."""
