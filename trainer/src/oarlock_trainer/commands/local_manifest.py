"""A TrainingJob's manifest as a job of this machine: its file is read, its paths in the pod become paths here.

The cluster is not asked, so what only it has is left out: Secrets (this machine's own AWS credentials are used instead),
webhooks and checks of the nodes.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_api.manifest import load_all
from oarlock_api.mistakes import mistakes
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.training import Training
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.local import here

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def read_manifest(path: Path) -> tuple[str, TrainingJobSpec]:
    """Name and spec of the TrainingJob in a YAML file.

    Raises ConfigurationError where there is none, or not one, or it is not what the API takes.
    """
    try:
        documents = load_all(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    jobs = [one for one in documents if isinstance(one, dict) and one.get("kind") == KIND]
    if len(jobs) != 1:
        raise ConfigurationError(f"{path} holds {len(jobs)} objects of kind {KIND}: one is taken at a time")
    version, name = jobs[0].get("apiVersion"), str((jobs[0].get("metadata") or {}).get("name") or "")
    if version != API_VERSION:
        raise ConfigurationError(f"{path}: apiVersion is {version}: this release knows {API_VERSION}")
    if not name:
        raise ConfigurationError(f"{path}: metadata.name is missing: give the job a name")
    try:
        # By the names of the API alone: the API server knows no others.
        spec = TrainingJobSpec.model_validate(jobs[0].get("spec") or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = "\n".join(f"  {one}" for one in mistakes(error, TrainingJobSpec, below="spec"))
        raise ConfigurationError(f"{path} is no TrainingJob that the API takes:\n{wrong}") from error
    return name, spec


def read_paths(pairs: Sequence[str]) -> dict[str, str]:
    """POD=HERE, given as words. Raises ConfigurationError where one is no such pair."""
    found = {}
    for pair in pairs:
        pod, separator, here = pair.partition("=")
        if not separator or not pod.startswith("/") or not here:
            raise ConfigurationError(f"--path {pair}: say POD=HERE, such as --path /output=/mnt/nfs")
        found[pod] = here
    return found


def moved(spec: TrainingJobSpec, paths: Mapping[str, str]) -> Training:
    """The job's training with its paths in the pod replaced by paths here, prefix by prefix; no Secrets.

    Raises ConfigurationError for a job with a trainer of its own.
    """
    if spec.training is None:
        raise ConfigurationError("the job has a trainer of its own (spec.custom): only spec.training can be taken here")
    raw = spec.training.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_defaults=True)
    for connection in raw.get("s3Connections", ()):
        connection.pop("credentialsSecretRef", None)
    for tracker in raw.get("tracking", ()):
        tracker.pop("secretRef", None)
    raw["model"].get("hub", {}).pop("tokenSecretRef", None)
    return Training.model_validate(_moved(raw, paths))


def output_here(name: str, spec: TrainingJobSpec, paths: Mapping[str, str]) -> str:
    """The job's output directory on this machine.

    Raises ConfigurationError where its storage is not here: a directory of the pod's name would be made in its stead.
    """
    mount = spec.output.mount_path.rstrip("/")
    there = f"{mount}/{spec.output.directory or name}"
    found = here(there, paths)
    if found == there and not Path(mount).is_dir():
        raise ConfigurationError(
            f"output.mountPath: {mount} is not on this machine: say where the output goes with --path {mount}=HERE"
        )
    return found


def job_file(name: str, spec: TrainingJobSpec, training: Training, *, output: str, paths: Mapping[str, str]) -> JobFile:
    """What the ranks of this machine are told.

    The UID is the same each time, so that a run goes on where the one before ended; it is that of no job of a cluster, so
    the output of one that has not finished is refused.
    """
    return JobFile(
        job=name,
        namespace="default",
        job_uid=f"{name}-on-one-machine",
        attempt=1,
        nodes=spec.nodes,
        gpus_per_node=spec.gpus_per_node,
        output_directory=output,
        training=training.to_manifest(),
        paths=dict(paths),
    )


@contextmanager
def written(manifest: Path, pairs: Sequence[str]) -> Iterator[Path]:
    """The job file of a manifest, for as long as its ranks need it. `pairs` as in read_paths."""
    paths = read_paths(pairs)
    name, spec = read_manifest(manifest)
    file = job_file(name, spec, moved(spec, paths), output=output_here(name, spec, paths), paths=paths)
    with tempfile.TemporaryDirectory(prefix="oarlock-job-") as folder:
        path = Path(folder, f"{name}.json")
        path.write_text(file.to_json(), encoding="utf-8")
        yield path


def _moved(value: Any, paths: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: here(below, paths) if key == "path" and isinstance(below, str) else _moved(below, paths)
            for key, below in value.items()
        }
    return [_moved(one, paths) for one in value] if isinstance(value, list) else value
