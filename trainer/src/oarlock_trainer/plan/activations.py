"""How much a forward pass keeps for the backward pass, by the number of blocks that are recomputed.

Counted in numbers of `width` bfloat16 values a token. A recomputed block keeps its input alone. What any other keeps was
counted on the CPU, where torch's compiler divides a block into its passes as for a GPU
(tests/plan/test_activations.py):

- Compiled, 19.1 in a double block and 17.1 in a single one. Beside the inputs of its matrices the compiler keeps both sides
  of the GELU, four widths each, and queries, keys and values before and after their norms.
- Compiled with an activation memory budget (models/compute/compiled.py), 13.1 and 12.1: it computes GELU and modulated norms
  once more in the backward pass, and no matrix and no attention.
- Eager, 20 and 17 beside float32 copies that two norms make on the CPU. 24 is taken.

What a GPU keeps has not been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

_BFLOAT16 = 2
_INPUT = 1.0


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths a token that a block of each kind keeps."""

    double: float
    single: float


_EAGER = Widths(24.0, 24.0)
_COMPILED = Widths(19.2, 17.2)
_LEAN = Widths(13.2, 12.2)


def widths(*, compiled: bool, lean: bool = False) -> Widths:
    """What a block keeps that is not recomputed. `lean`: compiled with an activation memory budget."""
    return _LEAN if lean else _COMPILED if compiled else _EAGER


def again(*, double: int, single: int) -> float:
    """Widths a token that lean blocks, so many of each kind, compute once more in the backward pass."""
    return double * (_COMPILED.double - _LEAN.double) + single * (_COMPILED.single - _LEAN.single)


def kept_bytes(*, double: int, single: int, recomputed: int, token_bytes: int, kept: Widths) -> int:
    """Bytes at the end of the forward pass, in which all double blocks come before all single ones.

    The first `recomputed` blocks keep their input, the others `kept`. `token_bytes`: `width_bytes` of the batch.
    """
    whole_double = max(double - recomputed, 0)
    whole_single = single - max(recomputed - double, 0)
    widths = recomputed * _INPUT + whole_double * kept.double + whole_single * kept.single
    return round(widths * token_bytes)


def working_bytes(*, token_bytes: int, compiled: bool) -> int:
    """Bytes of one block at work, beside what is kept: its recomputed values, or the gradients that pass through it."""
    return round((_INPUT + widths(compiled=compiled).double) * token_bytes)


def width_bytes(*, tokens: int, samples: int, width: int) -> int:
    """Bytes of one bfloat16 width of a micro-batch."""
    return samples * tokens * width * _BFLOAT16
