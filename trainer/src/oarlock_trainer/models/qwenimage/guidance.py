"""How two passes become one direction: as long as the prompt's own, token by token.

So a large scale turns the direction without making it longer, which would burn colours out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import linalg

from oarlock_trainer.models.guidance import along
from oarlock_trainer.models.qwenimage.tokens import pack, unpack

if TYPE_CHECKING:
    from torch import Tensor


def as_long(prompt: Tensor, negative: Tensor, scale: float) -> Tensor:
    """See `guidance.Guide`: what QwenImagePipeline makes of both."""
    both = pack(along(prompt, negative, scale))
    return unpack(both * (_length(pack(prompt)) / _length(both)))


def _length(tokens: Tensor) -> Tensor:
    """(B, 4 C, h/2, w/2) -> (B, 1, h/2, w/2): Euclidean, of each token."""
    length: Tensor = linalg.vector_norm(tokens, dim=1, keepdim=True)
    return length
