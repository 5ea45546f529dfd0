"""Every field of the spec is changed under a running job and changed back: nothing throws, and the gang trains on.

The fields and their values come from the CRD, so that a new field is walked without a word here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import job, spec
from pydantic import ValidationError
from worlds import World

from oarlock_api.spec import TrainingJobSpec

CRD = Path(__file__).parents[2] / "crds/trainingjobs.yaml"
Path_ = tuple[str, ...]
STOPS = {("suspend",), ("activeDeadlineSeconds",)}
"""Fields whose very purpose is to stop a running gang."""


def leaves(schema: dict[str, Any], path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Paths to fields that are no groups, each with a value that the schema allows; lists have one entry, [0]."""
    for name, field in (schema.get("properties") or {}).items():
        kind = field.get("type")
        if kind == "object" and field.get("properties"):
            yield from leaves(field, (*path, name))
        elif kind == "array" and (field.get("items") or {}).get("properties"):
            yield from leaves(field["items"], (*path, name, "[0]"))
        else:
            for value in values(field):
                yield (*path, name), value


def values(field: dict[str, Any]) -> list[Any]:
    kind, default = field.get("type"), field.get("default")
    if "enum" in field:
        return [value for value in field["enum"] if value != default]
    if kind == "boolean":
        return [not default]
    if kind in ("integer", "number"):
        lowest = field.get("minimum", 0)
        return [lowest if lowest != default else lowest + 1]
    if kind == "string":
        return ["another"]
    return []


def changed(raw: dict[str, Any], path: Path_, value: Any) -> TrainingJobSpec | None:
    """The job's spec with one field changed; None where that alone is no valid spec, or the list has no entry."""
    raw = copy.deepcopy(raw)
    at: Any = raw
    for part in path[:-1]:
        if part == "[0]":
            if not at:
                return None
            at = at[0]
        else:
            at = at.setdefault(part, [] if path[path.index(part) + 1] == "[0]" else {})
    if not isinstance(at, dict):
        return None
    at[path[-1]] = value
    try:
        return TrainingJobSpec.model_validate(raw)
    except ValidationError:
        return None


SCHEMA = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
RAW = spec().to_manifest()
WALK = [(path, value, new) for path, value in leaves(SCHEMA) if (new := changed(RAW, path, value)) is not None]


def test_the_walk_reaches_every_group_of_the_spec() -> None:
    assert {path[0] for path, _, _ in WALK} >= {
        "training",
        "pod",
        "scheduling",
        "preflight",
        "recovery",
        "suspend",
        "nodes",
    }
    assert len(WALK) > 100


@pytest.mark.parametrize(("path", "value", "new"), WALK, ids=[f"{'.'.join(p)}={v}" for p, v, _ in WALK])
def test_a_field_that_is_changed_and_changed_back_disturbs_nothing(path: Path_, value: Any, new: Any) -> None:  # noqa: ARG001 - it stands in the id
    world = World(job=job(spec=spec()))
    world.running(step=20, saved=10)
    before = world.job.status
    world.job = replace(world.job, spec=new, generation=2)
    world.settle()
    if path in STOPS:
        return
    world.job = replace(world.job, spec=spec(), generation=3)
    world.settle()
    after = world.job.status
    if path == ("nodes",):
        # Admission refuses it on a running job; the operator still must not throw.
        return
    assert (after.phase, after.attempt, after.restart_count) == (before.phase, 1, 0)
    assert after.completion_time is None
