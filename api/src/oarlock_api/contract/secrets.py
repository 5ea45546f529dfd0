"""Names of the variables that carry secret values into a pod.

The operator maps each reference of the job by secretKeyRef, job.json tells the names, the agent and the ranks read the
values: no value passes through the operator or stands in the pod's own object. Pure: one key of one Secret always has one
name, and no other has it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "OARLOCK_SECRET_"
_PATTERN = re.compile(PREFIX + r"[A-Z0-9_]{1,64}", re.ASCII)
_READABLE = 40
_DIGITS = 16
"""64 bits of a hash keep apart what reads alike: a-b/c and a/b-c, or two names that differ after 40 characters."""

S3_KEY_ID, S3_SECRET_KEY, S3_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
"""Keys of the Secret of an S3 connection; the token may be missing."""

TRACKER_KEYS: Mapping[str, tuple[str, ...]] = {
    "Wandb": ("WANDB_API_KEY", "WANDB_ENTITY"),
    "MLflow": ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
}
"""Keys of the Secret of a tracker, by the tracker's type. Any may be missing: the trainer tells what it needs."""


def secret_variable(secret: str, key: str) -> str:
    """Name of the variable that holds `key` of the Secret `secret`: at most 72 characters, legal in every shell."""
    path = f"{secret}/{key}"  # neither part can hold a slash
    readable = re.sub(r"[^A-Z0-9]", "_", path.upper())[:_READABLE]
    return f"{PREFIX}{readable}_{hashlib.sha256(path.encode()).hexdigest()[:_DIGITS].upper()}"


def is_secret_variable(name: str) -> bool:
    """Tell whether a name can be one of them: job.json may point at no other variable of the pod."""
    return _PATTERN.fullmatch(name) is not None


def s3_variables(training: Mapping[str, Any]) -> frozenset[str]:
    """Variables with the keys of a job's S3 connections: ranks need these. `training` as in job.json."""
    references = [connection.get("credentialsSecretRef") for connection in training.get("s3Connections") or ()]
    return frozenset(
        secret_variable(reference["name"], key)
        for reference in references
        if reference
        for key in (S3_KEY_ID, S3_SECRET_KEY, S3_TOKEN)
    )


def hub_variables(training: Mapping[str, Any]) -> frozenset[str]:
    """The variable with the token of the model hub that a job reads from: ranks of every node need it."""
    return _tokens([(training.get("model") or {}).get("hub")])


def publish_variables(training: Mapping[str, Any]) -> frozenset[str]:
    """Variables with the tokens of the model hubs that a job publishes to, which may write: rank 0 alone needs them."""
    return _tokens([one.get("hub") for one in training.get("publish") or ()])


def _tokens(hubs: Sequence[Mapping[str, Any] | None]) -> frozenset[str]:
    references = [hub.get("tokenSecretRef") for hub in hubs if hub]
    return frozenset(secret_variable(reference["name"], reference["key"]) for reference in references if reference)


def tracker_variables(training: Mapping[str, Any]) -> frozenset[str]:
    """Variables with the keys of a job's trackers, which rank 0 alone needs. `training` as in job.json."""
    return frozenset(
        secret_variable(tracker["secretRef"]["name"], key)
        for tracker in training.get("tracking") or ()
        if tracker.get("secretRef")
        for key in TRACKER_KEYS.get(tracker.get("type", ""), ())
    )
