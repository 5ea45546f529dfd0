"""How much a forward pass keeps for the backward pass, by the number of blocks that are recomputed.

Counted in numbers of `width` bfloat16 values a token. A recomputed block keeps its input alone. What any other keeps is its
family's to say (`architecture.Kept`), by how it is computed: eager, compiled, or compiled with an activation memory budget,
with which the compiler computes what is pointwise once more in the backward pass. What a GPU keeps has not been measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.models.architecture import BlockKind, Kept

_BFLOAT16 = 2
_INPUT = 1.0


def widths(kept: Kept, *, compiled: bool, lean: bool = False) -> float:
    """What a block keeps that is not recomputed. `lean`: compiled with an activation memory budget."""
    return kept.lean if lean else kept.compiled if compiled else kept.eager


def again(kinds: Sequence[BlockKind], *, text_share: float = 0.0) -> float:
    """Widths a token that lean blocks compute once more in the backward pass."""
    return sum(kind.number * kind.share(text_share) * (kind.kept.compiled - kind.kept.lean) for kind in kinds)


def kept_bytes(
    kinds: Sequence[BlockKind],
    *,
    recomputed: int,
    token_bytes: int,
    compiled: bool,
    lean: bool = False,
    text_share: float = 0.0,
) -> int:
    """Bytes at the end of the forward pass, whose blocks come in the order of `kinds`.

    The first `recomputed` blocks keep their input, the others what `widths` says. `token_bytes`: `width_bytes` of the batch,
    of whose tokens the text has `text_share`, 0..1.
    """
    kept, left = 0.0, recomputed
    for kind in kinds:
        again = min(kind.number, left)
        left -= again
        each = widths(kind.kept, compiled=compiled, lean=lean)
        kept += (again * _INPUT + (kind.number - again) * each) * kind.share(text_share)
    return round(kept * token_bytes)


def working_bytes(kinds: Sequence[BlockKind], *, token_bytes: int, compiled: bool) -> int:
    """Bytes of one block at work, beside what is kept: its recomputed values, or the gradients that pass through it."""
    return round((_INPUT + max(widths(kind.kept, compiled=compiled) for kind in kinds)) * token_bytes)


def width_bytes(*, tokens: int, samples: int, width: int) -> int:
    """Bytes of one bfloat16 width of a micro-batch."""
    return samples * tokens * width * _BFLOAT16
