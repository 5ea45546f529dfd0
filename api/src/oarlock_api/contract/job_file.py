"""job.json: what the operator tells every pod of an attempt about the job.

An older trainer image must refuse what it does not know instead of training differently, so the reader is strict here:
another version or an unknown field of the gang's facts is an error, and `training` is validated by the job's own models.
Secrets never stand in it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from oarlock_api.contract.environment import STATUS_PORT
from oarlock_api.contract.wire import WireError, parse_object

JOB_FILE_VERSION = 1
MAX_BYTES = 1024 * 1024
"""A ConfigMap's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One attempt's facts.

    `output_directory` is absolute in the pod, `min_free_bytes` None where the trainer's own estimate decides,
    `training` is spec.training as the API wrote it (camelCase, defaults filled in). `previous_owner_is_gone`: whoever
    made the pods has seen that nothing is left of an earlier job of this namespace and name, so its fence is a left-over.
    `hang_seconds` is spec.recovery.hangSeconds: 0 = the agent learns from the steps when they are overdue. The checks are
    those of spec.preflight; where one of the newer three is missing, the operator is older and does not ask for it.
    """

    job: str
    namespace: str
    job_uid: str
    attempt: int
    nodes: int
    gpus_per_node: int
    output_directory: str
    training: dict[str, Any]
    min_free_bytes: int | None = None
    storage_check: bool = True
    clock_check: bool = False
    gpu_check: bool = False
    collective_check: bool = False
    preflight_timeout_seconds: int = 300
    status_port: int = STATUS_PORT
    previous_owner_is_gone: bool = False
    hang_seconds: int = 0

    def to_json(self) -> str:
        """Deterministic, so that the same attempt always has the same ConfigMap."""
        return json.dumps({"version": JOB_FILE_VERSION, **asdict(self)}, sort_keys=True, indent=1)


_HINTS = get_type_hints(JobFile)
_KINDS: dict[str, Any] = {field.name: _HINTS[field.name] for field in fields(JobFile)} | {"training": dict}


def _fits(value: object, kind: Any) -> bool:
    # True and False are integers to Python, and to nobody else.
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def parse_job_file(body: str) -> JobFile:
    """Read job.json.

    Raises WireError (the pod then ends with 85) where the version, a field or a type is not one that this image knows.
    """
    raw = parse_object(body, max_bytes=MAX_BYTES)
    version = raw.pop("version", None)
    if version != JOB_FILE_VERSION or isinstance(version, bool):
        raise WireError(
            f"job.json has version {version}, this image knows {JOB_FILE_VERSION}: "
            "use the trainer image of the operator's release"
        )
    if unknown := sorted(raw.keys() - _KINDS.keys()):
        raise WireError(f"job.json has fields that this image does not know: {', '.join(unknown)}: use a newer image")
    if wrong := sorted(name for name, value in raw.items() if not _fits(value, _KINDS[name])):
        raise WireError(f"job.json has values of a wrong type: {', '.join(wrong)}")
    try:
        return JobFile(**raw)
    except TypeError as error:
        raise WireError(f"job.json is incomplete: {error}") from error
