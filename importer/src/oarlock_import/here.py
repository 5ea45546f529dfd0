"""The `plan` command for an imported job, with a --path for each root whose folder has another name on this machine.

SimpleTuner runs where its pictures are and reads relative paths from its own folder; in pods they begin at
--working-directory. So what the job reads is looked for here: as it is named, and in the folders around the configuration.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from oarlock_import.read import around

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from oarlock_api.trainingjob import TrainingJob

_MADE = ("imageEmbeds", "textEmbeds")
"""Groups whose folders the run makes: `plan` does not look for them."""
_HERE = "HERE"
"""Stands for a folder that is not found on this machine."""


def plan_command(job: TrainingJob, *, manifest: Path | None, config: Path, working_directory: str) -> str:
    """The command, with a remark behind it where a person has to fill something in.

    `config` is SimpleTuner's configuration; `manifest` is the file that the job was written to, if any.
    """
    words = ["oarlock-trainer", "plan", "-f", str(manifest or "JOB.YAML")]
    remarks = [] if manifest else ["JOB.YAML: the file with the manifest"]
    if job.spec.training is not None:
        paths = dict.fromkeys(_read(job.spec.training.to_manifest()))
        found = {path: _found(path, working_directory, config) for path in paths}
        # Without the model there is a plan all the same.
        is_whole = all(found[path] for path in found if path != job.spec.training.model.path)
        pairs = _pairs(found, (working_directory, job.spec.output.mount_path), is_whole=is_whole)
        words += [word for pod, here in pairs.items() for word in ("--path", f"{pod}={here}")]
        if not is_whole:
            remarks.append(f"{_HERE}: the folder of this machine that pods have under that name")
    return shlex.join(words) + (f"   # {'; '.join(remarks)}" if remarks else "")


def _read(value: Any) -> Iterator[str]:
    """Every path of a manifest that a run reads from its beginning on."""
    for key, below in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "path" and isinstance(below, str):
            yield below
        elif isinstance(below, dict | list) and key not in _MADE:
            yield from _read(below)


def _found(path: str, working_directory: str, config: Path) -> str:
    """Where a pod's path lies on this machine; "" where it is not found."""
    pure, places = PurePosixPath(path), [path]
    if pure.is_relative_to(working_directory):
        places += [str(place / pure.relative_to(working_directory)) for place in around(config)]
    return next((place for place in places if os.path.exists(place)), "")  # noqa: PTH110 - Path.exists raises where it may not look


def _pairs(found: Mapping[str, str], roots: Iterable[str], *, is_whole: bool) -> dict[str, str]:
    """Pod's path -> path here, for all that differ; one for a whole root, where that says the same."""
    pairs = {path: here for path, here in found.items() if here not in ("", path)}
    if not is_whole:
        pairs |= dict.fromkeys((path for path, here in found.items() if not here), _HERE)
    for root in dict.fromkeys(roots):
        below = {
            path: PurePosixPath(path).relative_to(root) for path in found if PurePosixPath(path).is_relative_to(root)
        }
        bases = {_base(pairs.get(path, ""), tail) for path, tail in below.items()}
        if len(bases) == 1 and (base := bases.pop()):
            pairs = {path: here for path, here in pairs.items() if path not in below} | {root: base}
    return pairs


def _base(here: str, tail: PurePosixPath) -> str:
    """What of a path here stands before its last part `tail`; "" where it does not end so."""
    if here == _HERE:
        return here
    return here.removesuffix(f"/{tail}") if here.endswith(f"/{tail}") else ""
