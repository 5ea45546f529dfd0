"""job.json of an attempt: what its pods are told, the same to each, without a secret in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

from oarlock_api.contract import sections
from oarlock_api.contract.dataclass_json import from_fields
from oarlock_api.contract.job_file import HistoryBounds, JobFile
from oarlock_api.contract.open_fields import left_open
from oarlock_api.contract.secrets import S3_KEY_ID, S3_SECRET_KEY, S3_TOKEN, TRACKER_KEYS, secret_variable
from oarlock_api.group import Group
from oarlock_api.naming import camel_case
from oarlock_api.quantity import whole_bytes
from oarlock_api.secret_refs import SecretKeyRef
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.model.observation import Job

ATTEMPT_LOG_BYTES = 1024**3
"""Of all logs of an attempt, compressed, however many pods it has."""
LEAST_LOG_BYTES = 1024**2
"""Of one pod's: less says too little of a fault."""

_Section = TypeVar("_Section")

_S3_KEYS: dict[str, dict[str, Any]] = {S3_KEY_ID: {}, S3_SECRET_KEY: {}, S3_TOKEN: {"optional": True}}
"""How each key of the Secret of an S3 connection is referred to."""


def output_directory(job: Job, spec: TrainingJobSpec) -> str:
    """Absolute path in the pod below which everything of the job lies."""
    return f"{spec.output.mount_path.rstrip('/')}/{spec.output.directory or job.name}"


def below_the_mount(spec: TrainingJobSpec, path: str) -> str | None:
    """A path of the pod as others find it who mount the same volume elsewhere; None where it lies on none of ours."""
    root = f"{spec.output.mount_path.rstrip('/')}/"
    return path.removeprefix(root) if path.startswith(root) else None


def job_file(job: Job, spec: TrainingJobSpec, attempt: int, *, spares: int = 0, elastic: bool = False) -> JobFile:
    """What the pods of an attempt are told. `spares`: how many it has; `elastic`: its rounds may be smaller than it."""
    training = spec.training.to_manifest(defaults=False) if spec.training else {}
    return JobFile(
        job=job.name,
        namespace=job.namespace,
        job_uid=job.uid,
        attempt=attempt,
        nodes=spec.nodes,
        gpus_per_node=spec.gpus_per_node,
        output_directory=output_directory(job, spec),
        training=training,
        training_defaults=(left_open(spec.training.to_manifest(), training) or {}) if spec.training else {},
        min_free_bytes=whole_bytes(spec.output.min_free) if spec.output.min_free else None,
        previous_owner_is_gone=True,
        custom=_section(sections.Custom, spec.custom) if spec.custom else None,
        ports=_section(sections.Ports, spec.pod.ports),
        preflight=_section(sections.Preflight, spec.preflight),
        recovery=_section(sections.Recovery, spec.recovery),
        webhooks=tuple(_section(sections.Webhook, webhook) for webhook in spec.webhooks),
        spares=spares,
        elastic=_section(sections.Elastic, spec.elastic) if elastic and spec.elastic else None,
        history=HistoryBounds(
            log_bytes=_log_bytes(spec, spec.nodes + spares), keep_attempts=spec.output.history.keep_attempts
        ),
    )


def _log_bytes(spec: TrainingJobSpec, pods: int) -> int:
    """A pod's share of what all pods of an attempt may keep: they write where the checkpoints lie."""
    share = max(LEAST_LOG_BYTES, ATTEMPT_LOG_BYTES // pods)
    return min(whole_bytes(spec.output.history.log_size), share)


def secret_references(spec: TrainingJobSpec) -> dict[str, dict[str, Any]]:
    """Secrets that the pods of a job are given: variable -> secretKeyRef. Each once, however often it is named.

    A key that is missing keeps the pods from starting, unless it is optional.
    """
    single = (*_of_webhooks(spec), *_of_hubs(spec))
    several = (
        *((secret, key, {"optional": True}) for secret, key in _of_trackers(spec)),
        *((secret, key, how) for secret in _of_connections(spec) for key, how in _S3_KEYS.items()),
    )
    return {secret_variable(one.name, one.key): one.to_manifest() for one in single} | {
        secret_variable(secret, key): {"name": secret, "key": key, **how} for secret, key, how in several
    }


def _of_webhooks(spec: TrainingJobSpec) -> Iterator[SecretKeyRef]:
    for webhook in spec.webhooks:
        for reference in (webhook.url_secret_ref, webhook.auth_secret_ref, webhook.signature_secret_ref):
            if reference:
                yield reference


def _of_hubs(spec: TrainingJobSpec) -> Iterator[SecretKeyRef]:
    if spec.training is None:
        return
    hubs = (spec.training.model.hub, *(one.hub for one in spec.training.publish))
    yield from (hub.token_secret_ref for hub in hubs if hub and hub.token_secret_ref)


def _of_connections(spec: TrainingJobSpec) -> Iterator[str]:
    for connection in spec.training.s3_connections if spec.training else ():
        if connection.credentials_secret_ref:
            yield connection.credentials_secret_ref.name


def _of_trackers(spec: TrainingJobSpec) -> Iterator[tuple[str, str]]:
    for tracker in spec.training.tracking if spec.training else ():
        if tracker.secret_ref:
            yield from ((tracker.secret_ref.name, key) for key in TRACKER_KEYS.get(tracker.type, ()))


def _section(kind: type[_Section], group: Group) -> _Section:
    """A section as pods are told it, without the fields that are not for them."""
    names = {camel_case(field.name) for field in fields(kind)}  # type: ignore[arg-type]
    return from_fields(kind, {name: value for name, value in group.to_manifest().items() if name in names})
