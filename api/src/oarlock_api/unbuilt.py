"""Fields that the API has and this release does not act on yet: a job that uses one is told so, never ignored.

A field counts as used where its value differs from its default. The operator asks before it makes a pod, and the trainer
once more, because an image may be older than the operator. The list shrinks to nothing as the parts are built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oarlock_api.group import Group
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.training import Training

UNBUILT: dict[str, tuple[object, ...]] = {
    "scheduling.gang": ("None",),
    "scheduling.queue": (),
    "scheduling.queuePriorityClassName": (),
    "scheduling.topology": (),
}
"""Path below spec (list entries are not numbered) -> values that do work, other than the default."""


def unbuilt_fields(spec: TrainingJobSpec) -> list[str]:
    """Paths of the fields that the job uses and this release does not know how to honour, in the spec's order."""
    return _unbuilt(_used(spec), ())


def unbuilt_training_fields(training: Training) -> list[str]:
    """The same for spec.training alone, which is all that a trainer sees."""
    return _unbuilt(_used(training), ("training",))


def _used(group: Group) -> dict[str, Any]:
    return group.model_dump(by_alias=True, mode="json", exclude_defaults=True, exclude_none=True)


def _unbuilt(used: dict[str, Any], above: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for path, value in _walk(used, above):
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
