"""job.json of an attempt: what its pods are told, the same to each, without a secret in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oarlock_api.contract.job_file import CustomProgram, JobFile, Webhook
from oarlock_api.contract.secrets import S3_KEY_ID, S3_SECRET_KEY, S3_TOKEN, TRACKER_KEYS, secret_variable
from oarlock_api.quantity import whole_bytes
from oarlock_api.secret_refs import SecretKeyRef
from oarlock_api.spec import Custom, TrainingJobSpec
from oarlock_operator.model.observation import Job

_S3_KEYS: dict[str, dict[str, Any]] = {S3_KEY_ID: {}, S3_SECRET_KEY: {}, S3_TOKEN: {"optional": True}}
"""How each key of the Secret of an S3 connection is referred to."""


def output_directory(job: Job, spec: TrainingJobSpec) -> str:
    """Absolute path in the pod below which everything of the job lies."""
    return f"{spec.output.mount_path.rstrip('/')}/{spec.output.directory or job.name}"


def below_the_mount(spec: TrainingJobSpec, path: str) -> str | None:
    """A path of the pod as others find it who mount the same volume elsewhere; None where it lies on none of ours."""
    root = f"{spec.output.mount_path.rstrip('/')}/"
    return path.removeprefix(root) if path.startswith(root) else None


def job_file(job: Job, spec: TrainingJobSpec, attempt: int) -> JobFile:
    """What the pods of an attempt are told."""
    return JobFile(
        job=job.name,
        namespace=job.namespace,
        job_uid=job.uid,
        attempt=attempt,
        nodes=spec.nodes,
        gpus_per_node=spec.gpus_per_node,
        output_directory=output_directory(job, spec),
        training=spec.training.to_manifest() if spec.training else {},
        min_free_bytes=whole_bytes(spec.output.min_free) if spec.output.min_free else None,
        storage_check=spec.preflight.storage,
        clock_check=spec.preflight.clock,
        gpu_check=spec.preflight.gpus,
        collective_check=spec.preflight.collective,
        min_bus_bandwidth=spec.preflight.min_bus_bandwidth,
        preflight_timeout_seconds=spec.preflight.timeout_seconds,
        status_port=spec.pod.ports.status,
        previous_owner_is_gone=True,
        hang_seconds=spec.recovery.hang_seconds,
        link_port=spec.pod.ports.link,
        rendezvous_port=spec.pod.ports.rendezvous,
        webhooks=_webhooks(spec),
        custom=_program(spec.custom) if spec.custom else None,
    )


def secret_references(spec: TrainingJobSpec) -> dict[str, dict[str, Any]]:
    """Secrets that the pods of a job are given: variable -> secretKeyRef. Each once, however often it is named.

    A key that is missing keeps the pods from starting, unless it is optional.
    """
    single = (*_of_webhooks(spec), *_of_hubs(spec))
    several = (
        *((secret, key, {"optional": True}) for secret, key in _of_trackers(spec)),
        *((secret, key, how) for secret in _of_connections(spec) for key, how in _S3_KEYS.items()),
    )
    return {_variable(reference): reference.to_manifest() for reference in single} | {
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


def _program(custom: Custom) -> CustomProgram:
    return CustomProgram(command=custom.command, args=custom.args, working_dir=custom.working_dir or "")


def _webhooks(spec: TrainingJobSpec) -> tuple[Webhook, ...]:
    return tuple(
        Webhook(
            name=webhook.name,
            type=webhook.type,
            url=webhook.url or "",
            url_variable=_variable(webhook.url_secret_ref),
            auth_variable=_variable(webhook.auth_secret_ref),
            signature_variable=_variable(webhook.signature_secret_ref),
            message_prefix=webhook.message_prefix or "",
            events=webhook.events,
            min_level=webhook.min_level,
        )
        for webhook in spec.webhooks
    )


def _variable(reference: SecretKeyRef | None) -> str:
    return secret_variable(reference.name, reference.key) if reference else ""
