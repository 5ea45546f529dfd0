"""The finished model in diffusers' format, whole or not there: a directory of all parts, or of a LoRA job its adapters.

It is made from a checkpoint, by as many as share the work: a job's ranks at its end, or one process later.

    begin (one) -> write_share (each) -> complete (one)
"""

from __future__ import annotations

import math
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.checkpoint import weight_files
from oarlock_trainer.checkpoint.weight_files import in_files
from oarlock_trainer.checkpoint.weights import Weights
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.parameters import parameter_shapes
from oarlock_trainer.models.transformer import saved_buffers
from oarlock_trainer.runtime.atomic_write import TEMPORARY, sync_folder, sync_tree
from oarlock_trainer.runtime.errors import storage
from oarlock_trainer.runtime.file_modes import make_ordinary
from oarlock_trainer.runtime.walking import walk_links

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from oarlock_api.contract.layout import Owner
    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.models.adapters.targets import Adapters

_TRAINED = "transformer"


class Export:
    """The export of one checkpoint. All methods raise StorageError."""

    def __init__(
        self, found: Checkpoint, base: Path, target: Path, *, adapters: Adapters | None, mark: str = ""
    ) -> None:
        """`target` becomes what `base`, in diffusers' layout, was trained to; `adapters` of a LoRA job (no base then).

        Who exports with another `mark` at the same time is not disturbed.
        """
        self._weights = Weights(found)
        self._base = base
        self._adapters = adapters
        self._final = target
        self._temporary = target.with_name(f"{TEMPORARY}{target.name}{mark}")

    def begin(self) -> None:
        """Write all that was not trained."""
        with storage("exporting the model"):
            shutil.rmtree(self._temporary, ignore_errors=True)
            if self._adapters:
                self._temporary.mkdir(parents=True)
                return
            _copy_the_rest(self._base, self._temporary)
            (self._temporary / _TRAINED).mkdir()
            # A copy: its mode is made an ordinary one, and a link's would be the base model's.
            shutil.copyfile(self._base / _TRAINED / "config.json", self._temporary / _TRAINED / "config.json")

    def write_share(self, rank: int, ranks: int) -> None:
        """Write every file of weights that falls to one of `ranks`."""
        with storage("exporting the model"):
            if self._adapters:
                if rank == 0:
                    self._write_adapters(self._adapters)
                return
            files = list(in_files(self._sizes).items())
            for name, tensors in files[rank::ranks]:
                self._write_weights(name, tensors)

    def complete(self) -> Path:
        """Put the model in its place; returns where it is."""
        final, temporary, output = self._final, self._temporary, self._final.parent
        with storage("exporting the model"):
            if not self._adapters:
                sizes = self._sizes
                weight_files.write_index(temporary / _TRAINED, in_files(sizes), total=sum(sizes.values()))
            make_ordinary(temporary if self._adapters else temporary / _TRAINED)
            sync_tree(temporary)
            if final.exists():
                old = output / f"{TEMPORARY}old-{final.name}"
                shutil.rmtree(old, ignore_errors=True)
                final.rename(old)
                temporary.rename(final)
                shutil.rmtree(old, ignore_errors=True)
            else:
                temporary.rename(final)
            sync_folder(output)
        return final

    def _write_adapters(self, settings: Adapters) -> None:
        factors = {name: self._weights.read(name, settings.shapes[name]) for name in self._weights.sizes}
        lora.save(factors, settings, self._temporary)

    def _write_weights(self, name: str, tensors: Sequence[str]) -> None:
        import torch  # noqa: PLC0415

        content = {
            tensor: self._buffers[tensor]
            if tensor in self._buffers
            else self._weights.read(tensor, self._shapes[tensor]).to(torch.bfloat16)
            for tensor in tensors
        }
        weight_files.write(self._temporary / _TRAINED / name, content)

    @cached_property
    def _buffers(self) -> Mapping[str, Tensor]:
        """The base model's, which are not trained."""
        return saved_buffers(self._base)

    @cached_property
    def _shapes(self) -> Mapping[str, Sequence[int]]:
        return parameter_shapes(self._base) | {name: tuple(one.shape) for name, one in self._buffers.items()}

    @property
    def _sizes(self) -> dict[str, int]:
        """Bytes of each tensor."""
        return {name: 2 * math.prod(shape) for name, shape in self._shapes.items()}


def mark_of(owner: Owner) -> str:
    """The mark of the export at a job's end."""
    return f"-a{owner.attempt}{owner.round_mark}"


def remove_unfinished(target: Path) -> None:
    """Remove what attempts and rounds left half-exported. Whoever holds the fence may. Raises StorageError."""
    with storage("exporting the model"):
        for left in list(target.parent.glob(f"{TEMPORARY}{target.name}-a[0-9]*")):
            shutil.rmtree(left, ignore_errors=True)


def _copy_the_rest(base: Path, target: Path) -> None:
    """Everything but the transformer and hidden files. Folders get ordinary modes, whatever those of `base` are."""
    for source, subfolders, names in walk_links(base):
        copy = target / source.relative_to(base)
        copy.mkdir(parents=True)
        left_out = {_TRAINED} if source == base else set()
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name not in left_out]
        for name in names:
            if not name.startswith("."):
                # A symbolic link, as in the hub's cache, would be linked itself and lead elsewhere from there.
                link_or_copy((source / name).resolve(), copy / name)


def link_or_copy(source: Path, target: Path) -> None:
    """The encoders are 10 GB that do not change: link them where both lie on one file system."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
