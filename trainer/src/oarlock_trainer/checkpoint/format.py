"""What a checkpoint is on disk, and what makes it valid.

    checkpoints/step-120-a2/
      rank-00000.state    what rank 0 kept of the float32 weights and of the optimizer's state (layout.py)
      rank-00001.state
      manifest.json       step, attempt, job, ranks, data position, every file with size and SHA-256, and what lies where
      COMMITTED           SHA-256 of manifest.json; written last

The weights that the model computes with are not in it: they are the float32 ones, rounded.

It is written under a temporary name, synced, and renamed. Valid is what has the marker, a manifest that the marker
matches, and every file in its size; the content is compared with its hash before it is loaded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.layout import CHECKPOINTS, parse_checkpoint_name
from oarlock_api.weights import AdapterAlgorithm
from oarlock_trainer.checkpoint.layout import Run
from oarlock_trainer.data.sampler import Origin
from oarlock_trainer.models.adapters.targets import Adapters

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = "manifest.json"
MARKER = "COMMITTED"
VERSION = 2


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of a checkpoint: `name` relative to it, size in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPosition:
    """Where the order of samples stands: enough to go on in the same order, or to cut what is left anew.

    `fingerprint` is that of the data, `order` the digest of the order over them, which began at `origin` and has `reached`
    this place. Both tell of streams in the order of `streams`: each one's name, and the samples that it gave an epoch.
    """

    fingerprint: str
    order: str
    origin: Origin
    reached: Origin
    streams: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """What a checkpoint holds. `step` optimizer steps are done; the optimizer has counted `updates` of them.

    `runs`: name of a file -> the runs that lie in it, in their order. `adapters`: None where the whole model was trained.
    `round`: the one of the attempt that it was kept in; told of the nodes' memory alone, where it is not the first.
    """

    step: int
    updates: int
    attempt: int
    job_uid: str
    world_size: int
    saved_at: str
    data: DataPosition
    files: tuple[FileFacts, ...]
    runs: Mapping[str, tuple[Run, ...]]
    adapters: Adapters | None = None
    round: int = 1

    def to_json(self) -> str:
        """JSON, stable."""
        values = asdict(self)
        if self.round == 1:
            del values["round"]  # so each version reads a checkpoint
        return json.dumps({"version": VERSION, **values}, sort_keys=True) + "\n"


def parse_manifest(body: str) -> CheckpointManifest:
    """Read a manifest.

    Raises ValueError, KeyError or TypeError where it is none that this version knows.
    """
    raw: dict[str, Any] = json.loads(body)
    if raw.pop("version") != VERSION:
        raise ValueError("a manifest of another version")
    position, adapters = raw.pop("data"), raw.pop("adapters", None)
    return CheckpointManifest(
        adapters=_adapters(adapters) if adapters else None,
        **{key: value for key, value in raw.items() if key not in ("files", "runs")},
        runs={file: tuple(Run(*run) for run in runs) for file, runs in raw["runs"].items()},
        files=tuple(FileFacts(**file) for file in raw["files"]),
        data=DataPosition(
            fingerprint=position["fingerprint"],
            order=position["order"],
            origin=_origin(position["origin"]),
            reached=_origin(position["reached"]),
            streams=tuple((name, samples) for name, samples in position["streams"]),
        ),
    )


def _adapters(raw: Mapping[str, Any]) -> Adapters:
    return Adapters(**{**raw, "algorithm": AdapterAlgorithm(raw.get("algorithm", AdapterAlgorithm.LORA))})


def _origin(raw: Mapping[str, Any]) -> Origin:
    return Origin(raw["step"], tuple(raw["consumed"]), tuple(raw["epochs"]))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that looks valid: committed, complete, sizes right.

    `in_memory`: it is none in the storage, but what the nodes kept for ranks that start anew (checkpoint/memory): at `path`
    each node has its own ranks' files alone.
    """

    path: Path
    step: int
    attempt: int
    manifest: CheckpointManifest
    in_memory: bool = False


_TOLD = 4
"""Lines about folders that do not count."""


def shard_name(rank: int) -> str:
    """File that a rank writes."""
    return f"rank-{rank:05}.state"


def marker_of(manifest: bytes) -> str:
    """What the marker of a manifest's very bytes says."""
    return hashlib.sha256(manifest).hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class InvalidError(Exception):
    """A folder is no valid checkpoint; the message says why."""


def inspect(path: Path) -> Checkpoint | None:
    """A checkpoint by its folder, or None where it is not valid. Raises PermissionError, as `read`."""
    try:
        return read(path)
    except InvalidError:
        return None


def read(path: Path) -> Checkpoint:
    """A checkpoint by its folder.

    Raises InvalidError where it is not valid, and PermissionError where it may not be read: to pass it over would be to train
    its steps again.
    """
    parsed = parse_checkpoint_name(path.name)
    if parsed is None:
        raise InvalidError("its name is not step-N-aM")
    try:
        body = (path / MANIFEST).read_bytes()
        marker = (path / MARKER).read_text(encoding="utf-8").strip()
        if marker_of(body) != marker:
            raise InvalidError(f"{MANIFEST} is not the one that {MARKER} was written for")
        manifest = parse_manifest(body.decode())
        for file in manifest.files:
            if (size := (path / file.name).stat().st_size) != file.size:
                raise InvalidError(f"{file.name} has {size} bytes, not {file.size}")
    except PermissionError:
        raise
    except FileNotFoundError as error:
        raise InvalidError(f"{Path(error.filename).name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidError(f"it cannot be read: {error}") from error
    if (manifest.step, manifest.attempt) != parsed:
        raise InvalidError(f"it holds step {manifest.step} of attempt {manifest.attempt}, not what its name says")
    return Checkpoint(path, *parsed, manifest)


def invalid_after(output: Path, step: int) -> list[tuple[Path, str]]:
    """The newest folders, at most _TOLD, that have the name of a checkpoint after this step and are none; and why not."""
    folder = output / CHECKPOINTS
    named = [(parse_checkpoint_name(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    after = sorted(((key, path) for key, path in named if key and key[0] > step), reverse=True)
    found = []
    for _, path in after[:_TOLD]:
        try:
            read(path)
        except InvalidError as error:
            found.append((path, str(error)))
    return found


def valid_checkpoints(output: Path) -> list[Checkpoint]:
    """All checkpoints that look valid, newest first."""
    folder = output / CHECKPOINTS
    found = [inspect(path) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((one for one in found if one), key=lambda one: (one.step, one.attempt), reverse=True)
