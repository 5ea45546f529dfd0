"""What captions cost, cached before training or encoded while training (data.textEmbedsMode): a model, nothing measured.

A caption goes through the family's text encoders at its full length. Caching asks each distinct caption's
work once, and its bytes; encoding on the fly asks the work of each caption that is drawn, and the encoders' room.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from oarlock_api.data import TextEmbedsMode

if TYPE_CHECKING:
    from oarlock_api.training import Training
    from oarlock_trainer.models.encoded import Encoded
    from oarlock_trainer.models.family import TextStack

LIVE_BATCH = 4
"""Captions of one call while training, where the job names no other number: 2,048 tokens keep a GPU's matrices busy."""
_BFLOAT16, _FLOAT32 = 2, 4
_HOST_TO_GPU = 25e9
"""Bytes/s of a GPU's way to the node's memory (PCIe 4, 16 lanes), as in speed.py."""


class Home(StrEnum):
    """Where the text encoders are while a job trains."""

    NONE = "none"
    """All captions are encoded before."""
    GPU = "GPU"
    HOST = "host"
    """In the node's memory, from where each layer comes when it works."""


def home(training: Training) -> Home:
    """Where a job's encoders are best, where they have room."""
    return Home.GPU if training.data.text_embeds_mode is TextEmbedsMode.ON_THE_FLY else Home.NONE


def live_captions(training: Training) -> int:
    """Captions of one call while training."""
    return training.data.tuning.text_batch_size or LIVE_BATCH


def gpu_bytes(texts: TextStack, place: Home, *, captions: int, tokens: int) -> int:
    """Bytes of the encoders on a GPU, at work on so many captions of so many tokens.

    At a layer's peak there are the scores of all heads in bfloat16 and twice in float32, where no kernel keeps them for
    itself, or three times the hidden layer.
    """
    if place is Home.NONE:
        return 0
    weights = texts.largest if place is Home.HOST else texts.parameters
    scores = texts.heads * tokens**2 * (_BFLOAT16 + 2 * _FLOAT32)
    hidden = tokens * (3 * texts.hidden + 4 * texts.width) * _BFLOAT16
    return (weights + texts.beside_parameters) * _BFLOAT16 + captions * (scores + hidden)


def host_bytes(texts: TextStack, place: Home) -> int:
    """Bytes of the node's memory that a rank's encoders take."""
    return texts.parameters * _BFLOAT16 if place is Home.HOST else 0


def flops(texts: TextStack, tokens: int) -> float:
    """Of one caption: two for each weight and token, and attention's."""
    return texts.layers * (2.0 * texts.layer_parameters * tokens + 4.0 * texts.width * tokens**2)


def seconds(texts: TextStack, place: Home, *, captions: int, tokens: int, rate: float) -> float:
    """Of a GPU for one micro-batch's captions, `rate` in FLOP/s. Streamed weights are taken to be waited for."""
    if place is Home.NONE:
        return 0.0
    moved = texts.parameters * _BFLOAT16 / _HOST_TO_GPU if place is Home.HOST else 0.0
    return captions * flops(texts, tokens) / rate + moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of a way to encode a job's captions: work of all GPUs together (FLOPs), and bytes that are stored."""

    flops: float
    stored: int


def costs(texts: TextStack, *, distinct: int, drawn: int, encoded: Encoded) -> dict[TextEmbedsMode, Cost]:
    """Of both ways, for `distinct` captions of which `drawn` are trained on, one for each sample of each step."""
    each = flops(texts, encoded.tokens)
    return {
        TextEmbedsMode.CACHE: Cost(flops=distinct * each, stored=distinct * encoded.caption),
        TextEmbedsMode.ON_THE_FLY: Cost(flops=drawn * each, stored=0),
    }
