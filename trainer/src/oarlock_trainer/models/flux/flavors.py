"""The variants of FLUX.1."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor, Reference

FLAVORS = {
    ModelFlavor.DEV: Flavor(text_tokens=512, steps=28, guidance=3.5),
    ModelFlavor.SCHNELL: Flavor(text_tokens=256, steps=4, guidance=1.0),
    ModelFlavor.KREA: Flavor(text_tokens=512, steps=28, guidance=4.5),
    ModelFlavor.KONTEXT: Flavor(text_tokens=512, steps=28, guidance=2.5, reference=Reference.BEHIND),
    ModelFlavor.FILL: Flavor(text_tokens=512, steps=50, guidance=30.0, reference=Reference.HOLES),
    ModelFlavor.CANNY: Flavor(text_tokens=512, steps=50, guidance=30.0, reference=Reference.BESIDE),
    ModelFlavor.DEPTH: Flavor(text_tokens=512, steps=30, guidance=10.0, reference=Reference.BESIDE),
}
"""Text tokens are those that T5 sequences are padded to. Schnell is distilled to four steps without guidance."""
