"""What the text encoders of the published FLUX.2 models cost, up to the last layer that is asked."""

from __future__ import annotations

from oarlock_trainer.models.family import TextStack
from oarlock_trainer.models.flux2.language_models import MISTRAL, QWEN3

_HEADS, _KEY_HEADS, _HEAD_WIDTH = 32, 8, 128


def _stack(name: str, *, vocabulary: int, layers: int, width: int, hidden: int, norms_heads: bool = False) -> TextStack:
    """Queries of 32 heads, keys and values of 8; gated feed-forward parts; norms before each part, and perhaps of heads."""
    inner, keys = _HEADS * _HEAD_WIDTH, _KEY_HEADS * _HEAD_WIDTH
    matrices = 2 * width * (inner + keys) + 3 * width * hidden
    norms = 2 * width + (2 * _HEAD_WIDTH if norms_heads else 0)
    return TextStack(
        name=name,
        parameters=vocabulary * width + layers * (matrices + norms),
        layers=layers,
        width=inner,  # of queries, which attention's work goes by
        heads=_HEADS,
        hidden=hidden,
        layer_parameters=matrices,
        largest=vocabulary * width,
        beside="",
        beside_parameters=0,
    )


def _qwen3(name: str, *, width: int, hidden: int) -> TextStack:
    layers = QWEN3.layers[-1]
    return _stack(name, vocabulary=151_936, layers=layers, width=width, hidden=hidden, norms_heads=True)


QWEN3_4B = _qwen3("Qwen3-4B", width=2560, hidden=9728)
QWEN3_8B = _qwen3("Qwen3-8B", width=4096, hidden=12_288)
MISTRAL_SMALL = _stack("Mistral Small 3.2", vocabulary=131_072, layers=MISTRAL.layers[-1], width=5120, hidden=32_768)
