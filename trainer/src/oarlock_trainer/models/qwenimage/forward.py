"""The Qwen-Image transformer's forward pass: diffusers' own, with the job's attention, positions and recomputed blocks.

diffusers' class makes its tables of positions as it is made, and they are no buffers: of a model that was made without
memory they are not there. `install` makes them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.compute import diffusers_pass
from oarlock_trainer.models.compute.unasked import beside
from oarlock_trainer.models.qwenimage.attention import JointAttention
from oarlock_trainer.models.qwenimage.positions import Positions

if TYPE_CHECKING:
    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Set all three. Modules, parameters and their names stay diffusers'.

    What the last block makes of the text is asked by nobody: the weights that make it get zeros as gradients.
    """
    places, blocks = transformer.pos_embed, transformer.transformer_blocks
    places.forward = Positions(places.axes_dim, places.theta)
    for block in blocks:
        block.attn.set_processor(JointAttention(attend))
    blocks[-1].register_forward_hook(_ends)
    diffusers_pass.install(transformer, [*blocks], recomputed=recomputed)


def _ends(_block: Any, _given: Any, made: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    text, image = made
    return text, beside(image, text)
