"""`oarlock-trainer import-single-file`: a model's folder of one file with its transformer, and of what that was made from.

It is written beside its place under a temporary name and renamed at the end, `model_index.json` last of all: what a crash
leaves behind is no model to anybody. That stays until a person removes it, because nobody can tell whether its writer was
killed or is at work on another machine.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.atomic_write import TEMPORARY, sync_folder, sync_tree
from oarlock_trainer.runtime.errors import ConfigurationError, TrainingEnd, storage
from oarlock_trainer.runtime.file_modes import make_ordinary
from oarlock_trainer.runtime.progress_line import meanwhile
from oarlock_trainer.runtime.walking import walk_links

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from oarlock_trainer.models.family import Family
    from oarlock_trainer.models.single_file import SingleFile

_BASE = "--base"


def run(options: argparse.Namespace) -> int:
    """Write the model; returns the exit code."""
    preload.settle_environment()  # torch reads it, and no hub is asked
    try:
        with meanwhile() as now:
            told = _import(options.file, options.base.absolute(), options.output.absolute(), now)
    except TrainingEnd as end:
        sys.stderr.write(f"{end}\n")
        return end.code
    sys.stdout.write("".join(f"{line}\n" for line in told))
    return ExitCode.DONE


def _import(file: Path, base: Path, output: Path, now: Callable[[str], None]) -> list[str]:
    """Write the model; returns what there is to tell."""
    with storage(f"looking at {output}"):
        _refuse_used(output)
    now("loading PyTorch")
    from oarlock_trainer.models import folder, single_file  # noqa: PLC0415 - torch
    from oarlock_trainer.models.families import family_in  # noqa: PLC0415 - as above

    family = family_in(base, _BASE)
    folder.check_beside_transformer(base, family, field=_BASE)
    now(f"reading the names in {file}")
    found = single_file.look_at(file)
    now("giving the weights diffusers' names")
    weights = single_file.weights(found, base, field=_BASE)
    told = _told(found, base, output, weights)
    with storage(f"writing {output}"), _written_beside(output) as temporary:
        _write(temporary, weights, base, family, now)
    return told


def _refuse_used(output: Path) -> None:
    if os.path.lexists(output) and (output.is_symlink() or output.is_mount() or not _is_empty(output)):
        raise ConfigurationError(
            f"--output: {output} is there already: name a folder that is not, or a plain empty one"
        )
    for left in sorted(output.parent.glob(glob.escape(f"{TEMPORARY}{output.name}-") + "*")):
        sys.stderr.write(
            f"{left} is there: {output} is being made by another process, or one was killed; then remove it\n"
        )


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


@contextmanager
def _written_beside(output: Path) -> Iterator[Path]:
    """A folder whose content takes the place of `output` at the end; after an error nothing stays of it."""
    temporary = output.with_name(f"{TEMPORARY}{output.name}-{secrets.token_hex(8)}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(output)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(output.parent)


def _write(temporary: Path, weights: dict[str, Tensor], base: Path, family: Family, now: Callable[[str], None]) -> None:
    from oarlock_trainer.checkpoint import weight_files  # noqa: PLC0415 - numpy
    from oarlock_trainer.checkpoint.export import link_or_copy  # noqa: PLC0415 - torch
    from oarlock_trainer.models.family import MODEL_INDEX, TRANSFORMER  # noqa: PLC0415 - torch is there by now

    now(f"taking all but the transformer from {base}")
    for name in _names_of_the_rest(base, family):
        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
        if name != MODEL_INDEX:
            link_or_copy((base / name).resolve(), temporary / name)
    (temporary / TRANSFORMER).mkdir()
    # A copy: its mode is made an ordinary one, and a link's would be the base model's.
    shutil.copyfile(base / TRANSFORMER / "config.json", temporary / TRANSFORMER / "config.json")
    sizes = {name: _size(tensor) for name, tensor in weights.items()}
    files, total, done = weight_files.in_files(sizes), sum(sizes.values()), 0
    for name, tensors in files.items():
        now(f"writing {done / 1e9:.1f} of {total / 1e9:.1f} GB")
        weight_files.write(temporary / TRANSFORMER / name, {one: weights.pop(one).contiguous() for one in tensors})
        done += sum(sizes[one] for one in tensors)
    weight_files.write_index(temporary / TRANSFORMER, files, total=total)
    make_ordinary(temporary / TRANSFORMER)
    now("waiting for the storage")
    sync_tree(temporary)
    shutil.copyfile(base / MODEL_INDEX, temporary / MODEL_INDEX)
    sync_tree(temporary)


def _names_of_the_rest(base: Path, family: Family) -> list[str]:
    """Of the base's files those that a job reads: no second copy of weights, and nothing of the transformer."""
    from oarlock_trainer.models import needed_files  # noqa: PLC0415 - for the same time
    from oarlock_trainer.models.family import TRANSFORMER  # noqa: PLC0415 - as above

    names = [
        path.relative_to(base).as_posix()
        for inside, _, files in walk_links(base)
        for path in (inside / name for name in files)
    ]
    return [name for name in needed_files.of_model(names, family) if not name.startswith(f"{TRANSFORMER}/")]


def _told(found: SingleFile, base: Path, output: Path, weights: dict[str, Tensor]) -> list[str]:
    total = sum(map(_size, weights.values()))
    lines = [
        f"wrote {output}: its transformer is {found.path}'s ({len(weights)} weights, {total / 1e9:.1f} GB), all else {base}'s"
    ]
    if found.is_widened:
        lines.append("weights that are float8 in the file are bfloat16 now, as exact as they were")
    if found.beside:
        lines.append(f"the file also holds {found.beside}: left out")
    return lines


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
