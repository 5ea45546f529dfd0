"""Fields that the API has and this release does not act on yet: a job that uses one is told so, never ignored.

A field counts as used where its value differs from its default. The list shrinks to nothing as the parts are built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oarlock_api.spec import TrainingJobSpec

UNBUILT: dict[str, tuple[object, ...]] = {
    "custom": (),
    "training.task": (),
    "training.model.s3": (),
    "training.model.hub": (),
    "training.initFrom": (),
    "training.method": (),
    "training.lora": (),
    "training.precision": (),
    "training.compile": (),
    "training.activationCheckpointing": (),
    "training.ema": (),
    "training.validation": (),
    "training.tracking": (),
    "training.publish": (),
    "training.s3Connections": (),
    "pod.hostNetwork": (),
    "pod.ports.link": (),
    "pod.patch": (),
    "scheduling.gang": ("None",),
    "scheduling.queue": (),
    "scheduling.queuePriorityClassName": (),
    "scheduling.topology": (),
    "scheduling.placementTimeoutSeconds": (),
    "preflight.collective": (),
    "recovery.maxRestartsWithoutProgress": (),
    "recovery.hangSeconds": (),
    "recovery.cordon": ("Never",),
    "recovery.forceDelete": ("Never",),
    "recovery.rules": (),
    "webhooks": (),
    "suspend": (),
    "startupDeadlineSeconds": (),
    "activeDeadlineSeconds": (),
    "ttlSecondsAfterFinished": (),
}
"""Path below spec (list entries are not numbered) -> values that do work, other than the default."""


def unbuilt_fields(spec: TrainingJobSpec) -> list[str]:
    """Paths of the fields that the job uses and this release does not know how to honour, in the spec's order."""
    used = spec.model_dump(by_alias=True, mode="json", exclude_defaults=True, exclude_none=True)
    found: dict[str, None] = {}
    for path, value in _walk(used, ()):
        for depth in range(1, len(path) + 1):
            known = ".".join(path[:depth])
            if known in UNBUILT and value not in UNBUILT[known]:
                found[f"spec.{known}"] = None
    return list(found)


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _walk(below, (*path, key))
    elif isinstance(value, list):
        for below in value:
            yield from _walk(below, path)
    else:
        yield path, value
