"""The weights that a checkpoint holds, tensor by tensor: what is exported comes from here, whatever engine trained it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.checkpoint.layout import Layout, Run
from oarlock_trainer.engine.engine import AVERAGE, MASTER
from oarlock_trainer.runtime.errors import ConfigurationError, storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.checkpoint.layout import FileSlice


class Weights:
    """The float32 weights of one checkpoint: their moving average, where the job had one."""

    def __init__(self, found: Checkpoint) -> None:
        """Reads nothing yet."""
        self._path = found.path
        self._layout = Layout(found.manifest.runs)
        averages = self._layout.sizes(AVERAGE)
        self._slot = AVERAGE if averages else MASTER
        self.sizes = averages or self._layout.sizes(MASTER)
        """Name of each parameter -> its elements."""

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """A parameter as float32.

        Raises ConfigurationError where the checkpoint is of another model, and StorageError.
        """
        values = torch.empty(tuple(shape), dtype=torch.float32)
        if self.sizes.get(name) != values.numel():
            raise ConfigurationError(
                f"the checkpoint {self._path} has {self.sizes.get(name, 'no')} elements for {name}, the model "
                f"{values.numel()}: they do not belong together"
            )
        with storage(f"reading the checkpoint {self._path}"):
            flat = values.view(-1)
            for piece in self._layout.pieces(Run(name, self._slot, 0, flat.numel())):
                with (self._path / piece.file).open("rb", buffering=0) as file:
                    read_piece(file.fileno(), piece, flat)
        return values


def read_piece(descriptor: int, piece: FileSlice, into: Tensor) -> None:
    """Fill the piece's elements of a flat float32 tensor of the CPU. Raises OSError."""
    room = memoryview(into.detach()[piece.into : piece.into + piece.length].numpy()).cast("B")  # type: ignore[arg-type]
    offset = piece.offset
    while room:
        read = os.preadv(descriptor, [room], offset)
        if not read:
            raise OSError(f"a file of it ends at byte {offset}")
        room, offset = room[read:], offset + read
