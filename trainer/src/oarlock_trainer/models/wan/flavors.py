"""The variants of Wan 2.1 that draw videos of texts alone."""

from __future__ import annotations

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Flavor

_USUAL = Flavor(text_tokens=512, steps=50, guidance=5.0, is_guided_twice=True)

FLAVORS = {ModelFlavor.T2V1_3B: _USUAL, ModelFlavor.T2V14B: _USUAL}
"""Wan-AI/Wan2.1-T2V-1.3B-Diffusers and Wan-AI/Wan2.1-T2V-14B-Diffusers: of one architecture in two sizes. Text tokens are
those that UMT5's sequences are padded to."""
