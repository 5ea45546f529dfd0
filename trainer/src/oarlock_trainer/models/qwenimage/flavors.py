"""The variants of Qwen-Image."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor, Reference, Sight

_USUAL = Flavor(text_tokens=1024, steps=50, guidance=4.0, is_guided_twice=True)
_EDIT = Flavor(
    text_tokens=512,
    steps=50,
    guidance=4.0,
    is_guided_twice=True,
    reference=Reference.BEHIND,
    sight=Sight(area=1024 * 1024, edge=32),
)

FLAVORS = {ModelFlavor.V1: _USUAL, ModelFlavor.V2512: _USUAL, ModelFlavor.EDIT: _EDIT}
"""V1 is the first one (Qwen/Qwen-Image), V2512 that of December 2025 (Qwen/Qwen-Image-2512), Edit the one that is given a
picture to edit (Qwen/Qwen-Image-Edit): of one architecture. Text tokens are the most that a caption may have with what ends
its turn, and without what stands before it: 34 tokens, of Edit 64 and the reference."""
