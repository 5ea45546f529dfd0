"""The generated CRD: complete, bounded, small, and in step with the models and with the committed file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_api import crd
from oarlock_api.group import Group
from oarlock_api.rules import VALIDATIONS
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.structural import structural_schema

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Manifest

ALLOWED_SIZE = 200 * 1024
"""Of what the API server stores; `kubectl apply` keeps it in an annotation besides, which may have 256 KiB."""

SCHEMA = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]
STATUS = SCHEMA["properties"]["status"]


def nodes(schema: Manifest, path: str) -> Iterator[tuple[str, Manifest]]:
    """Every schema below one, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(further := schema.get("additionalProperties"), dict):
        yield from nodes(further, f"{path}{{}}")


ALL = [*nodes(SPEC, "spec"), *nodes(STATUS, "status")]


def test_the_committed_crd_is_what_the_models_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_crd_is_told_with_the_command_that_mends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stale = tmp_path / "trainingjobs.yaml"
    stale.write_text(crd.render().replace("maximum: 4096", "maximum: 8", 1))
    assert crd.main(["--check", "--output", str(stale)]) == 1
    said = capsys.readouterr().err
    assert "python -m oarlock_api.crd" in said
    assert "+                maximum: 4096" in said


def test_the_crd_is_the_same_every_time() -> None:
    assert crd.render() == crd.render()
    assert yaml.safe_load(crd.render()) == crd.custom_resource_definition()


def test_the_crd_is_smaller_than_200_kib() -> None:
    assert len(json.dumps(crd.custom_resource_definition()).encode()) < ALLOWED_SIZE


def test_every_field_has_a_description() -> None:
    assert [path for path, node in ALL if not node.get("description") and not path.endswith(("[]", "{}"))] == []


def test_every_string_list_and_map_is_bounded() -> None:
    limits = {"string": ("maxLength", "enum", "format"), "array": ("maxItems",)}
    unbounded = [
        path for path, node in ALL if not any(limit in node for limit in limits.get(node.get("type", ""), node))
    ]
    assert unbounded == []
    maps = [node for _, node in ALL if "additionalProperties" in node]
    assert all("maxProperties" in node for node in maps)


def test_every_number_of_the_spec_has_both_bounds() -> None:
    numbers = [(path, node) for path, node in nodes(SPEC, "spec") if node.get("type") in {"integer", "number"}]
    assert [path for path, node in numbers if "minimum" not in node or "maximum" not in node] == []


def test_every_list_says_how_it_merges() -> None:
    lists = [(path, node) for path, node in ALL if node.get("type") == "array"]
    assert [path for path, node in lists if "x-kubernetes-list-type" not in node] == []
    for path, node in lists:
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], path


def test_no_word_of_the_api_is_read_as_a_boolean_by_yaml() -> None:
    words = {word for _, node in ALL for word in node.get("enum", ())} - {"True", "False", "Unknown"}
    assert {word for word in words if not isinstance(yaml.safe_load(word), str)} == set()


def test_nothing_of_the_status_is_filled_in_but_that_nobody_has_looked_yet() -> None:
    assert [path for path, node in nodes(STATUS, "status") if "default" in node] == ["status"]
    assert STATUS["default"] == {"observedGeneration": -1}


def test_every_optional_group_starts_with_its_defaults_unless_its_presence_means_something() -> None:
    meant = {
        "spec.output.nfs",
        "spec.training",
        "spec.training.lora",
        "spec.training.lora.lokr",
        "spec.training.initFrom",
        "spec.training.validation.promptsFrom",
        "spec.training.validation.references",
        "spec.training.data.textEmbeds",
        "spec.training.data.imageEmbeds",
        "spec.training.data.datasets[].metadata",
        "spec.training.data.datasets[].metadata.discovery",
        "spec.training.data.datasets[].imageEmbeds.location",
        "spec.training.data.datasets[].video",
        "spec.pod.patch",
    }
    without_default = {
        f"{path}.{name}"
        for path, node in nodes(SPEC, "spec")
        for name, child in node.get("properties", {}).items()
        if "properties" in child and "default" not in child
        # a group with a required field can't start empty
        if "required" not in child and name not in node.get("required", ())
    }
    assert without_default <= meant


def test_a_group_with_rules_brings_the_defaults_that_its_rules_read() -> None:
    for path, node in nodes(SPEC, "spec"):
        if VALIDATIONS in node and "default" in node and "properties" in node:
            own = {name: child["default"] for name, child in node["properties"].items() if "default" in child}
            assert node["default"] == own, path


def filled(schema: Manifest, value: Any) -> Any:
    """A value with the schema's defaults, filled in as the API server does it."""
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        given = {name: child["default"] for name, child in known.items() if "default" in child} | value
        return {name: filled(known.get(name, {}), entry) for name, entry in given.items()}
    if isinstance(value, list) and "items" in schema:
        return [filled(schema["items"], entry) for entry in value]
    return value


def without_empty(value: Any) -> Any:
    """A manifest without empty lists and maps of scalars, which mean the same as none."""
    if isinstance(value, dict):
        return {name: without_empty(entry) for name, entry in value.items() if entry != []}
    return [without_empty(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training": {"method": "LoRA", "lora": {}, "ema": {"decay": 0.9}, "s3Connections": [{}]}},
        {"training": {"method": "LoRA", "lora": {"algorithm": "LoKr", "lokr": {}}}},
        {"training": {"validation": {"everySteps": 1, "prompts": [{"name": "a", "prompt": "a"}]}}},
        {"webhooks": [{"name": "a", "url": "https://a.example"}]},
        {"training": None, "custom": {"command": ["train"]}, "pod": {"image": "image"}},
    ],
    ids=["minimal", "LoRA", "LoKr", "validation", "webhook", "custom"],
)
def test_defaults_of_the_schema_are_those_of_the_models(make_job: Callable[..., Manifest], changes: Manifest) -> None:
    given = make_job(changes)["spec"]
    written = without_empty(TrainingJobSpec.model_validate(given).to_manifest())
    for group, name in (("scheduling", "nodeSelector"), ("pod", "labels"), ("pod", "annotations")):
        written[group].pop(name)
    if "training" in written:
        written["training"]["optimizer"].pop("options")
    assert filled(SPEC, given) == written


def test_a_field_of_several_types_is_refused_by_the_generator() -> None:
    class Mixed(Group):
        value: int | str = 0

    with pytest.raises(ValueError, match=r"Mixed\.value: a field of several types"):
        structural_schema(Mixed, defaults=True)
