"""Bringing a checkpoint's state into an engine, whatever number of ranks saved it and whatever number loads it.

Each rank reads the ranges of the files that hold its own parts. Contents were compared with their hashes before, when
the checkpoint was chosen (reader.py).
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.checkpoint.layout import Layout, Run
from oarlock_trainer.checkpoint.weights import read_piece
from oarlock_trainer.engine.engine import MASTER
from oarlock_trainer.engine.sharded import elements
from oarlock_trainer.runtime.errors import ConfigurationError, storage
from oarlock_trainer.runtime.heartbeat import Heartbeat, with_heartbeat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.engine.engine import Engine, TensorSlice
    from oarlock_trainer.models.adapters.targets import Adapters

_LISTED = 3


def load(found: Checkpoint, engine: Engine, *, adapters: Adapters | None = None) -> None:
    """Continue from a checkpoint; `adapters` of a LoRA job. Collective.

    Raises ConfigurationError where it is of another model, method or optimizer, and StorageError.
    """
    layout = Layout(found.manifest.runs)
    parts = engine.parts()
    if found.manifest.adapters != adapters:
        raise ConfigurationError(
            f"the checkpoint {found.path} has {_words(found.manifest.adapters)}, the job asks for {_words(adapters)}: set "
            "method and lora as they were, or give the job another output.directory"
        )
    check_same_state(found, layout, engine, parts)
    with storage(f"reading the checkpoint {found.path}"), ExitStack() as opened:
        files: dict[str, int] = {}
        for part in with_heartbeat(parts, Heartbeat()):
            values = part.values
            as_written = values.device.type == "cpu" and values.dtype is torch.float32
            here = values if as_written else torch.empty(values.shape, dtype=torch.float32)
            for piece in layout.pieces(Run(part.name, part.slot, part.start, values.numel())):
                if piece.file not in files:
                    files[piece.file] = _open(found.path / piece.file, opened)
                read_piece(files[piece.file], piece, here)
            if here is not values:
                values.copy_(here)
    engine.restored(found.manifest.updates, parts)


def check_same_state(found: Checkpoint, layout: Layout, engine: Engine, parts: Sequence[TensorSlice]) -> None:
    """Raise ConfigurationError where a checkpoint holds other parameters, or another optimizer's state."""
    saved = layout.sizes(MASTER)
    now = {
        name: elements(parameter) for name, parameter in engine.weights.named_parameters() if parameter.requires_grad
    }
    if saved != now:
        raise ConfigurationError(
            f"the checkpoint {found.path} is of another model or method: {_difference(saved, now)}. Give the job back the "
            "model, the method and the LoRA settings that it had, or start from it anew: another output.directory, and "
            "training.initFrom with the exported weights"
        )
    slots = {slot for _, slot in layout.slots}
    needed = {part.slot for part in parts}
    if parts and slots != needed:
        raise ConfigurationError(
            f"the checkpoint {found.path} is of another optimizer: it holds {', '.join(sorted(slots))}, this one keeps "
            f"{', '.join(sorted(needed))}. Set optimizer.name and ema as they were, or give the job another output.directory"
        )


def _words(adapters: Adapters | None) -> str:
    if adapters is None:
        return "no adapters"
    return f"{adapters.algorithm} adapters of rank {adapters.rank} and alpha {adapters.alpha:g}"


def _difference(saved: Mapping[str, int], now: Mapping[str, int]) -> str:
    return "; ".join(
        f"{words} {', '.join(sorted(names)[:_LISTED])}{f' and {len(names) - _LISTED} more' if len(names) > _LISTED else ''}"
        for words, names in (
            ("only it has", saved.keys() - now.keys()),
            ("it lacks", now.keys() - saved.keys()),
            ("of another size are", {name for name in saved.keys() & now.keys() if saved[name] != now[name]}),
        )
        if names
    )


def _open(path: Path, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    opened.callback(os.close, descriptor)
    return descriptor
