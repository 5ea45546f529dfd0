"""What the text encoder of the published Qwen-Image models costs: the language model of Qwen2.5-VL 7B.

The last layer for words is not used, and the network that sees pictures by Qwen-Image-Edit alone.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock_trainer.models.family import TextStack

_VOCABULARY, _WIDTH, _HIDDEN, _LAYERS = 152_064, 3584, 18_944, 28
_HEADS, _KEYS = 28, 4 * 128
"""Heads of queries; values of a token's keys, in four heads."""
_MATRICES = 2 * _WIDTH * (_WIDTH + _KEYS) + 3 * _WIDTH * _HIDDEN

TEXTS = TextStack(
    name="Qwen2.5-VL",
    # beside matrices: biases of queries, keys and values, two norms of each layer, and the last one
    parameters=_VOCABULARY * _WIDTH + _LAYERS * (_MATRICES + 3 * _WIDTH + 2 * _KEYS) + _WIDTH,
    layers=_LAYERS,
    width=_WIDTH,
    heads=_HEADS,
    hidden=_HIDDEN,
    layer_parameters=_MATRICES,
    largest=_VOCABULARY * _WIDTH,
    beside="",
    beside_parameters=0,
)

SEEING_TEXTS = replace(TEXTS, beside="its network for pictures", beside_parameters=676_550_144)
"""Of Qwen-Image-Edit, whose texts are behind pictures."""
