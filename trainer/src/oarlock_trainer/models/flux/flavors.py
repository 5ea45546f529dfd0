"""The variants of FLUX.1."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor

FLAVORS = {
    ModelFlavor.DEV: Flavor(text_tokens=512, steps=28, guidance=3.5),
    ModelFlavor.SCHNELL: Flavor(text_tokens=256, steps=4, guidance=1.0),
    ModelFlavor.KREA: Flavor(text_tokens=512, steps=28, guidance=4.5),
    ModelFlavor.KONTEXT: Flavor(text_tokens=512, steps=28, guidance=2.5, takes_reference=True),
}
"""Text tokens are those that T5 sequences are padded to. Schnell is distilled to four steps without guidance."""
