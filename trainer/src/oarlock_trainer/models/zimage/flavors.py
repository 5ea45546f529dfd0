"""The variants of Z-Image."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor

FLAVORS = {
    ModelFlavor.BASE: Flavor(text_tokens=512, steps=50, guidance=4.0, is_guided_twice=True),
    ModelFlavor.TURBO: Flavor(text_tokens=512, steps=9, guidance=0.0, is_guided_twice=True),
}
"""Text tokens are the most that a caption may have with what the chat template puts around it. Turbo is distilled to few
steps without guidance."""
