"""How much a forward pass keeps for the backward pass, by the number of blocks that are recomputed.

Counted in numbers of `width` bfloat16 values a token, from what autograd keeps of each operation. A recomputed block
keeps its input alone. Any other keeps the inputs of its matrices, queries, keys and values, the attention's output and
the hidden layer of its feed-forward part: 10 to 12 widths where pointwise chains are fused by the compiler, about 24
where each of their steps is an operation of its own. Autograd's own count on the CPU is 20 in a double block and 17 in
a single one, beside float32 copies that two norms keep there and, fused, do not keep on a GPU. What a GPU keeps has not
been measured.
"""

from __future__ import annotations

_BFLOAT16 = 2
_INPUT = 1
_FUSED = 11
_EAGER = 24


def kept_bytes(*, blocks: int, recomputed: int, tokens: int, samples: int, width: int, compiled: bool) -> int:
    """Bytes at the end of the forward pass: `recomputed` of `blocks` keep their input, the others everything."""
    widths = recomputed * _INPUT + (blocks - recomputed) * (_FUSED if compiled else _EAGER)
    return widths * samples * tokens * width * _BFLOAT16


def working_bytes(*, tokens: int, samples: int, width: int, compiled: bool) -> int:
    """Bytes of one block at work, beside what is kept: its recomputed values, or the gradients that pass through it."""
    return (_INPUT + (_FUSED if compiled else _EAGER)) * samples * tokens * width * _BFLOAT16
