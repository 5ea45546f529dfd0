"""A network's weights in files, as diffusers names them: one, or several with an index. What is written is on the storage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.atomic_write import sync_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

_LARGEST_FILE = 4 * 10**9
"""Bytes. A file is put together in memory, and sixteen ranks have one each of a FLUX.1 model."""
_WEIGHTS = "diffusion_pytorch_model"


def in_files(sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """File -> its tensors, which take so many bytes."""
    groups: list[list[str]] = [[]]
    taken = 0
    for name, size in sizes.items():
        if groups[-1] and taken + size > _LARGEST_FILE:
            groups.append([])
            taken = 0
        groups[-1].append(name)
        taken += size
    if len(groups) == 1:
        return {f"{_WEIGHTS}.safetensors": groups[0]}
    return {f"{_WEIGHTS}-{number:05}-of-{len(groups):05}.safetensors": group for number, group in enumerate(groups, 1)}


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write one file."""
    from safetensors.torch import save_file  # noqa: PLC0415 - brings torch

    save_file(dict(tensors), path, metadata={"format": "pt"})
    sync_file(path)


def write_index(folder: Path, files: Mapping[str, Sequence[str]], *, total: int) -> None:
    """Write which tensor is in which of several files, `total` bytes; a single file needs no index."""
    if len(files) == 1:
        return
    body = {
        "metadata": {"total_size": total},
        "weight_map": {tensor: name for name, tensors in files.items() for tensor in tensors},
    }
    path = folder / f"{_WEIGHTS}.safetensors.index.json"
    path.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n", encoding="utf-8")
