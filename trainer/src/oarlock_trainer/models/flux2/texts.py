"""What the text encoders of the published FLUX.2 models cost, up to the last layer that is asked."""

from __future__ import annotations

from oarlock_trainer.models.family import TextStack

_VOCABULARY = 151_936
_HEADS, _KEY_HEADS, _HEAD_WIDTH = 32, 8, 128
_LAYERS = 27


def _qwen3(name: str, *, width: int, hidden: int) -> TextStack:
    """Queries of 32 heads, keys and values of 8; gated feed-forward parts; norms of queries, keys, and before each part."""
    inner, keys = _HEADS * _HEAD_WIDTH, _KEY_HEADS * _HEAD_WIDTH
    matrices = 2 * width * (inner + keys) + 3 * width * hidden
    return TextStack(
        name=name,
        parameters=_VOCABULARY * width + _LAYERS * (matrices + 2 * width + 2 * _HEAD_WIDTH),
        layers=_LAYERS,
        width=inner,  # of queries, which attention's work goes by
        heads=_HEADS,
        hidden=hidden,
        layer_parameters=matrices,
        largest=_VOCABULARY * width,
        beside="",
        beside_parameters=0,
    )


QWEN3_4B = _qwen3("Qwen3-4B", width=2560, hidden=9728)
QWEN3_8B = _qwen3("Qwen3-8B", width=4096, hidden=12_288)
