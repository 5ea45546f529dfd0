"""The variants of FLUX.2."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor, Reference

_TOKENS = 512
"""What texts are padded to, in the pipelines of all variants."""
_BASE = Flavor(text_tokens=_TOKENS, steps=50, guidance=4.0, is_guided_twice=True, reference=Reference.BEHIND)
_DISTILLED = Flavor(text_tokens=_TOKENS, steps=4, guidance=1.0, is_guided_twice=True, reference=Reference.BEHIND)

FLAVORS = {
    ModelFlavor.KLEIN_BASE_4B: _BASE,
    ModelFlavor.KLEIN_BASE_9B: _BASE,
    ModelFlavor.KLEIN_4B: _DISTILLED,
    ModelFlavor.KLEIN_9B: _DISTILLED,
    ModelFlavor.DEV: Flavor(text_tokens=_TOKENS, steps=50, guidance=4.0, reference=Reference.BEHIND),
}
"""Dev is told its guidance. Klein without Base is distilled to four steps without guidance; Base is what it was distilled
from, and what to train.
"""
