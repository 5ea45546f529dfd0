"""The Wan transformer's forward pass: diffusers' own, with the job's attention, positions, masks and recomputed blocks.

diffusers' class has no argument for a mask of texts. Here `encoder_hidden_states` may be a text with its mask: they go
through the model together, to each block's cross-attention. The bare class refuses such a pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.compute import diffusers_pass
from oarlock_trainer.models.wan.attention import OwnAttention
from oarlock_trainer.models.wan.positions import Positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend
    from oarlock_trainer.models.wan.attention import Masked


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Set all four. Modules, parameters and their names stay diffusers'."""
    rope, embedder, blocks = transformer.rope, transformer.condition_embedder, transformer.blocks
    rope.forward = Positions(rope)
    embedder.forward = _WithMask(embedder.forward)
    for block in blocks:
        for attention in (block.attn1, block.attn2):
            attention.set_processor(OwnAttention(attend))
    diffusers_pass.install(transformer, [*blocks], recomputed=recomputed)


class _WithMask:
    """The embedder of noise levels and texts, past which a text's mask goes as it is."""

    def __init__(self, embed: Callable[..., Any]) -> None:
        self._embed = embed

    def __call__(self, timestep: Tensor, text: Tensor | Masked, *more: Any, **named: Any) -> Any:
        """Noise levels, modulations, texts and images, as diffusers has them; texts with their mask where they had one."""
        if not isinstance(text, tuple):
            return self._embed(timestep, text, *more, **named)
        states, mask = text
        levels, modulations, embedded, images = self._embed(timestep, states, *more, **named)
        return levels, modulations, (embedded, mask), images
