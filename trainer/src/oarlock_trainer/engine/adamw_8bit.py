"""AdamW with moments of 8 bits (Dettmers et al. 2022), by bitsandbytes: a quarter of the memory that AdamW's moments take.

Each block of 256 elements of a moment is kept as codes of a table and the block's largest magnitude. Tensors of fewer than
4096 elements keep float32. Of the libraries this one takes a flat shard of any length (a long one in pieces, see
`_PIECE`); torchao's falls back to float32 without a word where the length is no multiple of its block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

BLOCK = 256
_PIECE = 2**30
"""Elements that a kernel is given at once, which counts them in an int of 32 bits: FLUX.1's share on 4 GPUs has 3e9. They are
whole blocks, so that pieces change no number."""
_CHUNK = BLOCK << 16
"""Elements that are quantized at once: 64 MB of float32, and twice that while they are."""


def make_adamw_8bit(
    groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> Optimizer:
    """Bitsandbytes' optimizer, with a table of codes that is its own mirror image."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it offers kernels from the internet
    from bitsandbytes.functional import optimizer_update_8bit_blockwise  # noqa: PLC0415 - takes seconds
    from bitsandbytes.optim import AdamW8bit  # noqa: PLC0415

    class InPieces(AdamW8bit):  # type: ignore[misc]  # the library has no types
        def update_step(self, group: dict[str, Any], p: Any, gindex: int, pindex: int) -> None:
            if p.numel() <= _PIECE:
                super().update_step(group, p, gindex, pindex)
                return
            state = self.state[p]
            state["step"] += 1
            kept = [state[name].view(-1) for name in ("state1", "state2")]
            largest = [state[name] for name in ("absmax1", "absmax2")]
            tables = [state[name] for name in ("qmap1", "qmap2")]
            for at in range(0, p.numel(), _PIECE):
                piece, blocks = slice(at, at + _PIECE), slice(at // BLOCK, (at + _PIECE) // BLOCK)
                optimizer_update_8bit_blockwise(
                    self.optimizer_name,
                    p.grad.reshape(-1)[piece],
                    p.data.view(-1)[piece],
                    *(one[piece] for one in kept),
                    *group["betas"],
                    0.0,
                    0.0,  # of another optimizer's third moment, as the number before
                    group["eps"],
                    state["step"],
                    group["lr"],
                    *tables,
                    *(one[blocks] for one in largest),
                    weight_decay=group["weight_decay"],
                )

    optimizer = InPieces(groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    # Its table has 1 and not -1: a block whose largest magnitude is a negative number would shrink by 0.7 % whenever it is
    # quantized. With -1 what was read from a block and is written back into it is the same block, bit by bit.
    optimizer.name2qmap["dynamic"][0] = -1.0
    made: Optimizer = optimizer
    return made


class QuantizedSlot:
    """One quantized moment of a parameter, as float32.

    Whole blocks that were read come back exactly. Other values are rounded to the nearest code: by at most 1.1 % of the
    largest magnitude in their block (0.4 % in a moment that is never negative), and those that share a block with an end of
    the run that is written once more.
    """

    def __init__(self, codes: Tensor, largest: Tensor, table: Tensor) -> None:
        """`codes` uint8 (n,), `largest` float32 (blocks,), `table` float32 (256,), ascending: parts of the state."""
        self._codes, self._largest, self._table = codes.view(-1), largest, table

    def __len__(self) -> int:
        """Elements."""
        return len(self._codes)

    def read(self, start: int, stop: int) -> Tensor:
        """Elements [start, stop) as float32, a copy."""
        first, values = self._blocks(start, stop)
        return values[start - first : stop - first].clone()

    def write(self, start: int, values: Tensor) -> None:
        """Overwrite the elements from `start` on."""
        for at in range(0, len(values), _CHUNK):
            self._write(start + at, values[at : at + _CHUNK])

    def _write(self, start: int, values: Tensor) -> None:
        stop = start + len(values)
        first, blocks = self._blocks(start, stop)
        blocks[start - first : stop - first].copy_(values)
        codes, largest = _quantized(blocks, self._table)
        self._codes[first : first + len(codes)] = codes
        self._largest[first // BLOCK : first // BLOCK + len(largest)] = largest

    def _blocks(self, start: int, stop: int) -> tuple[int, Tensor]:
        """First element, and values, of the whole blocks that hold [start, stop)."""
        from bitsandbytes.functional import dequantize_blockwise  # noqa: PLC0415

        first, last = start // BLOCK, -(-stop // BLOCK)
        codes = self._codes[first * BLOCK : last * BLOCK]
        values: Tensor = dequantize_blockwise(
            codes, absmax=self._largest[first:last], code=self._table, blocksize=BLOCK
        )
        return first * BLOCK, values.to(torch.float32)


def _quantized(values: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Codes uint8 (n,) and the largest magnitude of each block, as bitsandbytes keeps them.

    Its own function for the CPU takes a neighbour of the nearest code now and then, so that a block would not come back.
    """
    padded = torch.nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    largest = padded.abs().amax(dim=1)
    scaled = padded / largest.clamp_min(torch.finfo(torch.float32).tiny)[:, None]
    middles = (table[1:] + table[:-1]) / 2
    codes = torch.bucketize(scaled, middles, out_int32=True).to(torch.uint8)
    return codes.view(-1)[: len(values)], largest
