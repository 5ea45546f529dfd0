"""The variants of Stable Diffusion 3.5."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor

FLAVORS = {
    ModelFlavor.LARGE: Flavor(text_tokens=256, steps=28, guidance=3.5, is_guided_twice=True),
    ModelFlavor.MEDIUM: Flavor(text_tokens=256, steps=40, guidance=4.5, is_guided_twice=True),
}
"""Text tokens are those that T5 sequences are padded to; those of CLIP come before them."""
