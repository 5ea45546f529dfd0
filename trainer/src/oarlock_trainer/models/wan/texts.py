"""What the text encoder of the published Wan models costs: the encoder of UMT5-XXL."""

from __future__ import annotations

from oarlock_trainer.models.family import TextStack

_VOCABULARY, _WIDTH, _HIDDEN, _LAYERS, _HEADS, _BUCKETS = 256_384, 4096, 10_240, 24, 64, 32
_MATRICES = 4 * _WIDTH**2 + 3 * _WIDTH * _HIDDEN
"""Of a layer, whose feed-forward part is gated."""

TEXTS = TextStack(
    name="UMT5",
    # beside matrices: two norms of each layer and what it adds by distance, and the last norm
    parameters=_VOCABULARY * _WIDTH + _LAYERS * (_MATRICES + 2 * _WIDTH + _BUCKETS * _HEADS) + _WIDTH,
    layers=_LAYERS,
    width=_WIDTH,
    heads=_HEADS,
    hidden=_HIDDEN,
    layer_parameters=_MATRICES,
    largest=_VOCABULARY * _WIDTH,
    beside="",
    beside_parameters=0,
)
