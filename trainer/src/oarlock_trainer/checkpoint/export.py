"""The finished model in diffusers' format, whole or not there: a directory of all parts, or of a LoRA job its adapters."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from oarlock_api.contract.layout import MODEL
from oarlock_trainer.durable import TEMPORARY, sync_folder, sync_tree
from oarlock_trainer.errors import storage
from oarlock_trainer.models.flux import lora
from oarlock_trainer.modes import make_ordinary

if TYPE_CHECKING:
    from oarlock_api.weights import Lora

_TRAINED = "transformer"
_SHARD_SIZE = "10GB"


def export(transformer: Any, base: Path, output: Path, *, adapters: Lora | None = None) -> Path:
    """Write `<output>/model`: the trained transformer and the rest of `base` as it is, or the `adapters` alone. Rank 0 only.

    Raises StorageError.
    """
    final, temporary = output / MODEL, output / f"{TEMPORARY}{MODEL}"
    with storage("exporting the model"):
        shutil.rmtree(temporary, ignore_errors=True)
        if adapters:
            lora.save(transformer, adapters, temporary)
            make_ordinary(temporary)
        else:
            _copy_the_rest(base, temporary)
            transformer.save_pretrained(temporary / _TRAINED, max_shard_size=_SHARD_SIZE)
            make_ordinary(temporary / _TRAINED)
        sync_tree(temporary)
        if final.exists():
            old = output / f"{TEMPORARY}old-{MODEL}"
            shutil.rmtree(old, ignore_errors=True)
            final.rename(old)
            temporary.rename(final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(final)
        sync_folder(output)
    return final


def _copy_the_rest(base: Path, target: Path) -> None:
    """Everything but the transformer and hidden files. Folders get ordinary modes, whatever those of `base` are."""
    for folder, subfolders, names in os.walk(base, onerror=_raise, followlinks=True):
        source = Path(folder)
        copy = target / source.relative_to(base)
        copy.mkdir(parents=True)
        left_out = {_TRAINED} if source == base else set()
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name not in left_out]
        for name in names:
            if not name.startswith("."):
                # A symbolic link, as in the hub's cache, would be linked itself and lead elsewhere from there.
                _link_or_copy((source / name).resolve(), copy / name)


def _raise(error: OSError) -> NoReturn:
    raise error


def _link_or_copy(source: Path, target: Path) -> None:
    """The encoders are 10 GB that do not change: link them where both lie on one file system."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
