"""A job that uses what this release does not act on is told which field; one that uses nothing of it never is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_api.spec import TrainingJobSpec
from oarlock_api.unbuilt import UNBUILT, unbuilt_fields

ROOT = Path(__file__).parents[2]
SCHEMA = TrainingJobSpec.model_json_schema(by_alias=True)
BASE: dict[str, Any] = {
    "nodes": 2,
    "output": {"persistentVolumeClaim": {"claimName": "out"}},
    "training": {
        "model": {"family": "Flux1", "path": "/output/models/tiny"},
        "steps": 100,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
    },
}

# One job per entry of UNBUILT: what is merged over a job that is accepted.
USES: dict[str, dict[str, Any]] = {
    "scheduling.gang": {"scheduling": {"gang": "Volcano"}},
    "scheduling.queue": {"scheduling": {"queue": "team"}},
    "scheduling.queuePriorityClassName": {"scheduling": {"queue": "team", "queuePriorityClassName": "high"}},
    "scheduling.topology": {"scheduling": {"topology": {"requiredKey": "rack"}}},
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A merge patch: None removes."""
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def using(over: dict[str, Any]) -> TrainingJobSpec:
    return TrainingJobSpec.model_validate(merged(BASE, over))


def step_into(node: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of a field, through references, optionals and lists."""
    while "properties" not in node:
        options = [option for option in node.get("anyOf", []) if option.get("type") != "null"]
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node.get("items") or options[0]
    found: dict[str, Any] = node["properties"][name]
    return found


@pytest.mark.parametrize("path", UNBUILT)
def test_every_path_that_is_listed_is_a_field_of_the_spec(path: str) -> None:
    node = SCHEMA
    for name in path.split("."):
        node = step_into(node, name)
    assert node


def test_every_path_that_is_listed_has_a_job_that_uses_it_below() -> None:
    assert UNBUILT.keys() == USES.keys()


@pytest.mark.parametrize("path", USES)
def test_a_job_that_uses_the_field_is_told_its_name(path: str) -> None:
    assert f"spec.{path}" in unbuilt_fields(using(USES[path]))


@pytest.mark.parametrize("path", [path for path, over in USES.items() if len(over) == 1])
def test_nothing_but_what_was_used_is_named(path: str) -> None:
    named = {name.removeprefix("spec.") for name in unbuilt_fields(using(USES[path]))}
    needed = {"scheduling.queuePriorityClassName": {"scheduling.queue"}}
    assert named == {path} | needed.get(path, set())


@pytest.mark.parametrize("path", [path for path, values in UNBUILT.items() if values])
def test_a_value_that_asks_for_nothing_is_never_named(path: str) -> None:
    *groups, name = path.split(".")
    for value in UNBUILT[path]:
        uses: dict[str, Any] = {name: value}
        for group in reversed(groups):
            uses = {group: uses}
        if name == "task":
            uses["training"]["steps"] = None
        assert unbuilt_fields(using(uses)) == []


def test_a_default_is_never_named_whether_it_is_absent_or_written_out() -> None:
    absent = using({})
    assert unbuilt_fields(absent) == []
    written_out = TrainingJobSpec.model_validate(absent.to_manifest())
    assert written_out == absent
    assert unbuilt_fields(written_out) == []


@pytest.mark.parametrize("name", ["trainingjob.yaml", "custom.yaml"])
def test_the_published_examples_are_built(name: str) -> None:
    path = ROOT / "examples" / name
    raw = next(doc for doc in yaml.safe_load_all(path.read_text()) if doc["kind"] == "TrainingJob")
    assert unbuilt_fields(TrainingJobSpec.model_validate(raw["spec"])) == []
