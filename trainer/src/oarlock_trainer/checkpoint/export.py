"""The finished model: a diffusers directory in safetensors, whole or not there."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import MODEL
from oarlock_trainer.durable import TEMPORARY, sync_folder, sync_tree
from oarlock_trainer.errors import storage

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

_TRAINED = "transformer"
_SHARD_SIZE = "10GB"


def export(transformer: Any, base: Path, output: Path) -> Path:
    """Write `<output>/model`: the trained transformer, and the rest of `base` as it is. Rank 0 only.

    Raises StorageError.
    """
    final, temporary = output / MODEL, output / f"{TEMPORARY}{MODEL}"
    with storage("exporting the model"):
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(base, temporary, ignore=_only_the_rest(base), copy_function=_link_or_copy)
        transformer.save_pretrained(temporary / _TRAINED, max_shard_size=_SHARD_SIZE)
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


def _only_the_rest(base: Path) -> Any:
    def ignore(folder: str, names: list[str]) -> set[str]:
        hidden = {name for name in names if name.startswith(".")}
        return hidden | ({_TRAINED} & set(names) if base.samefile(folder) else set())

    return ignore


def _link_or_copy(source: str, target: str) -> str:
    """The encoders are 10 GB that do not change: link them where both lie on one file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
