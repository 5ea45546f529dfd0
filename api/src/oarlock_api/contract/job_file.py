"""job.json: what the operator tells every pod of an attempt about the job.

Sections of the spec stand in it as the user wrote them, in the API's own names. An older trainer image must refuse what it
does not know instead of training differently, so the reader is strict: another version or an unknown field is an error,
and `training` is validated by the job's own models. Only of `training_defaults` is passed over what is not known. Secrets
never stand in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from oarlock_api.contract.dataclass_json import from_fields, to_fields
from oarlock_api.contract.open_fields import joined
from oarlock_api.contract.sections import Custom, Elastic, Ports, Preflight, Recovery, Webhook
from oarlock_api.contract.wire import WireError, parse_object

JOB_FILE_VERSION = 2
MAX_BYTES = 256 * 1024
"""It travels in an annotation of the pod, and Kubernetes takes no more of all annotations together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBounds:
    """spec.output.history. `log_bytes`: of a pod's log, 0 = none is kept. `keep_attempts`: whose logs and stacks are kept."""

    log_bytes: int = 16 * 1024 * 1024
    keep_attempts: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One attempt's facts, and the sections of the spec that its pods read.

    `output_directory` is absolute in the pod, `min_free_bytes` None where the trainer's own estimate decides.
    `previous_owner_is_gone`: whoever made the pods has seen that nothing is left of an earlier job of this namespace and
    name, so its fence is a left-over.
    `training` is what spec.training sets, in the API's names, and `training_defaults` the defaults of what it leaves open;
    both are empty where the job has a trainer of its own, `custom`. `ports.rendezvous` is 0 where whoever starts the ranks
    says in their environment where they meet. `spares` pods stand by beyond the first `nodes`; with `elastic` a round may
    have fewer members than `nodes`. `paths`: where a path of a pod lies for a job that runs on one machine.
    """

    job: str
    namespace: str
    job_uid: str
    attempt: int
    nodes: int
    gpus_per_node: int
    output_directory: str
    training: dict[str, Any]
    training_defaults: dict[str, Any] = field(default_factory=dict)
    min_free_bytes: int | None = None
    previous_owner_is_gone: bool = False
    custom: Custom | None = None
    ports: Ports = field(default_factory=Ports)
    preflight: Preflight = field(default_factory=Preflight)
    recovery: Recovery = field(default_factory=Recovery)
    webhooks: tuple[Webhook, ...] = ()
    spares: int = 0
    elastic: Elastic | None = None
    history: HistoryBounds = field(default_factory=HistoryBounds)
    paths: dict[str, Any] = field(default_factory=dict)

    @property
    def whole_training(self) -> dict[str, Any]:
        """spec.training with the defaults that the API promised."""
        whole: dict[str, Any] = joined(self.training, self.training_defaults)
        return whole

    def to_json(self) -> str:
        """Deterministic, and short, because each pod of a gang carries it: defaults are left out.

        Not those of `training`, which stand apart: an image of another release may have other defaults, and must train what
        the API promised, but for fields that it does not know.
        """
        told = {"version": JOB_FILE_VERSION, **to_fields(self, name=str)}
        return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
    job = from_fields(JobFile, raw, name=str)
    if job.custom and job.training:
        raise WireError("job.json has to name one trainer: it has training and custom")
    if job.custom and not job.custom.command:
        raise WireError("custom.command is empty: name the program that trains")
    return job
