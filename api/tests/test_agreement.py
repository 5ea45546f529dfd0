"""The API server and the models draw the same line: whatever one refuses, the other refuses too.

Fields all over the spec are set to values at, within and beyond their bounds, a few at a time. The seed is fixed, so a
disagreement is found by everybody or by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from oarlock_api.crd import custom_resource_definition
from oarlock_api.trainingjob import TrainingJob

if TYPE_CHECKING:
    from conftest import ApiServer, Manifest

SPEC = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

TEXTS = ["", "a", "photos", "default", "Upper Case", "/output/x", "https://a.example", "200Gi", "1024x1024", "é" * 63]


def _text(schema: Manifest) -> Iterator[Any]:
    yield from TEXTS
    yield "a" * schema.get("maxLength", 1)
    yield "a" * (schema.get("maxLength", 1) + 1)
    yield 7


def _number(schema: Manifest) -> Iterator[Any]:
    low, high = schema.get("minimum", 0), schema.get("maximum", 1)
    whole = schema["type"] == "integer"
    yield from (low, high, low + 1, low - 1, high + 1, "7", True)
    yield low + 0.5 if whole else low + (high - low) / 3


def _scalars(schema: Manifest) -> list[Any]:
    if "enum" in schema:
        return [*schema["enum"], schema["enum"][0].lower() + "x"]
    if schema.get("x-kubernetes-int-or-string"):
        return [1, "200Gi", "1.5Ti", "200GB", "-1", "", "1e3"]
    if schema["type"] == "string":
        return list(_text(schema))
    if schema["type"] == "boolean":
        return [True, False, "true"]
    return list(_number(schema))


def values(schema: Manifest) -> st.SearchStrategy[Any]:
    """Values for a field, most of them allowed."""
    if schema.get("type") == "array":
        return st.lists(values(schema["items"]), max_size=min(schema["maxItems"] + 1, 3))
    if schema.get("type") != "object":
        return st.sampled_from(_scalars(schema))
    if "properties" not in schema:
        return st.sampled_from([{}, {"a": "b"}, {"oarlock.dev/x": "y"}, "text"])
    fields = {name: values(child) for name, child in schema["properties"].items()}
    required = {name: fields[name] for name in schema.get("required", ())}
    optional = [st.just({}), *(field.map(lambda value, name=name: {name: value}) for name, field in fields.items())]
    return st.tuples(st.fixed_dictionaries(required), st.one_of(optional)).map(lambda parts: parts[0] | parts[1])


def changes(schema: Manifest) -> st.SearchStrategy[Manifest]:
    """A merge patch that sets one field somewhere below a group."""

    def into(name: str) -> st.SearchStrategy[Manifest]:
        child = schema["properties"][name]
        inner = changes(child) if child.get("properties") else values(child)
        return inner.map(lambda value: {name: value})

    return st.sampled_from(sorted(schema["properties"])).flatmap(into)


def _objection(job: Manifest) -> str:
    try:
        TrainingJob.model_validate(job)
    except ValidationError as error:
        return str(error)
    return ""


@pytest.mark.cluster
def test_server_and_models_refuse_the_same_jobs(api: ApiServer, make_job: Callable[..., Manifest]) -> None:
    seen = {True: 0, False: 0}

    @settings(
        max_examples=200,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],  # each example is a request to a real server
    )
    @given(st.lists(changes(SPEC), min_size=1, max_size=3))
    def compare(patches: list[Manifest]) -> None:
        job = make_job()
        for patch in patches:
            job["spec"] = _merged(job["spec"], patch)
        answer = api.create(job)
        objection = _objection(job)
        assert answer.is_success == (not objection), (patches, answer.text[:2000], objection)
        seen[answer.is_success] += 1

    compare()
    assert min(seen.values()) > 20


def _merged(base: Any, patch: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    return base | {name: _merged(base.get(name), value) for name, value in patch.items()}
