"""`oarlock-trainer checkpoints`: what a job's output holds, whether it is whole, and the model in it. It changes nothing."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import CHECKPOINTS, parse_checkpoint_name
from oarlock_trainer.checkpoint.format import Checkpoint, InvalidError, digest, read
from oarlock_trainer.commands.checkpoints_arguments import DAMAGED
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError, TrainingEnd

if TYPE_CHECKING:
    import argparse

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCheckpoint:
    """A checkpoint as it is listed. `wrong` says why it is not valid; what is not known then is None."""

    name: str
    step: int
    attempt: int
    valid: bool
    wrong: str = ""
    saved_at: str | None = None
    bytes: int | None = None
    ranks: int | None = None


def run(options: argparse.Namespace) -> int:
    """Do one part of the command; returns its exit code."""
    try:
        return _PARTS[options.part](options)
    except TrainingEnd as end:
        sys.stderr.write(f"{end}\n")
        return end.code


def ls(options: argparse.Namespace) -> int:
    """List all."""
    lines = [_line(path) for path in _folders(options.directory)]
    if options.json:
        _say(json.dumps([asdict(line) for line in lines], indent=1))
        return ExitCode.DONE
    rows = [("STEP", "ATTEMPT", "AGE", "SIZE", "RANKS", "STATE"), *(_cells(line, datetime.now(UTC)) for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return ExitCode.DONE


def verify(options: argparse.Namespace) -> int:
    """Compare each file with its hash."""
    found = _chosen(options.directory, options.step)
    files = found.manifest.files
    with ThreadPoolExecutor(min(len(files), os.cpu_count() or 1) or 1) as pool:
        hashes = list(pool.map(lambda file: digest(found.path / file.name), files))
    damaged = [file.name for file, said in zip(files, hashes, strict=True) if said != file.sha256]
    for name in damaged:
        _say(f"{found.path / name} is damaged: its content is not what was written")
    if damaged:
        return DAMAGED
    size = sum(file.size for file in files)
    _say(f"{found.path} is whole: {len(files)} files, {size / 1e9:.1f} GB, as they were written")
    return ExitCode.DONE


def export(options: argparse.Namespace) -> int:
    """Write the model of one."""
    preload.settle_environment()
    from oarlock_trainer.checkpoint.export import Export  # noqa: PLC0415 - brings torch, which reads the environment
    from oarlock_trainer.models import folder  # noqa: PLC0415 - as above
    from oarlock_trainer.models.families import family_in  # noqa: PLC0415 - as above

    found = _chosen(options.directory, options.step)
    adapters, target = found.manifest.adapters, options.to.absolute()
    if target.exists():
        raise ConfigurationError(f"--to: {target} is there already: name a directory that is not")
    if adapters is None:
        if options.model is None:
            raise ConfigurationError("--model: say which model was trained: all but its transformer is taken from it")
        folder.check(options.model, family_in(options.model, "--model"), field="--model")
    target.parent.mkdir(parents=True, exist_ok=True)
    exporting = Export(found, (options.model or target).absolute(), target, adapters=adapters)
    exporting.begin()
    exporting.write_share(0, 1)
    _say(f"step {found.step} of attempt {found.attempt} is exported: {exporting.complete()}")
    return ExitCode.DONE


def _folders(directory: Path) -> list[Path]:
    """Everything that is named as a checkpoint, newest first.

    Raises ConfigurationError where there is no folder for checkpoints.
    """
    folder = directory if directory.name == CHECKPOINTS else directory / CHECKPOINTS
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no directory: name a job's output directory")
    named = {path: parsed for path in folder.iterdir() if (parsed := parse_checkpoint_name(path.name))}
    return sorted(named, key=lambda path: named[path], reverse=True)


def _chosen(directory: Path, step: int | None) -> Checkpoint:
    """The newest valid one, or that after `step` steps. Raises ConfigurationError where there is none."""
    reasons = []
    for path in _folders(directory):
        try:
            if step is None or (parse_checkpoint_name(path.name) or ())[:1] == (step,):
                return read(path)
        except InvalidError as invalid:
            reasons.append(f"{path.name}: {invalid}")
    wanted = "valid checkpoint" if step is None else f"valid checkpoint of step {step}"
    raise ConfigurationError("; ".join([f"{directory} has no {wanted}", *reasons]))


def _line(path: Path) -> ListedCheckpoint:
    step, attempt = parse_checkpoint_name(path.name) or (0, 0)
    try:
        manifest = read(path).manifest
    except InvalidError as invalid:
        return ListedCheckpoint(name=path.name, step=step, attempt=attempt, valid=False, wrong=str(invalid))
    return ListedCheckpoint(
        name=path.name,
        step=step,
        attempt=attempt,
        valid=True,
        saved_at=manifest.saved_at,
        bytes=sum(file.size for file in manifest.files),
        ranks=manifest.world_size,
    )


def _cells(line: ListedCheckpoint, now: datetime) -> tuple[str, ...]:
    age = _age((now - datetime.fromisoformat(line.saved_at)).total_seconds()) if line.saved_at else "-"
    size = f"{line.bytes / 1e9:.2f} GB" if line.bytes is not None else "-"
    state = "valid" if line.valid else f"not valid: {line.wrong}"
    return str(line.step), str(line.attempt), age, size, str(line.ranks or "-"), state


def _age(seconds: float) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if seconds >= unit), _UNITS[-1])
    return f"{max(seconds, 0) / unit:.0f} {name}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


_PARTS = {"ls": ls, "verify": verify, "export": export}
