"""spec.training in two parts, what the job sets and what it leaves open, is the whole again when they are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_api.contract.open_fields import dropped, joined, left_open
from oarlock_api.trainingjob import TrainingJob

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("**/*.yaml"))
JOBS = {
    f"{path.stem}-{number}": one
    for path in EXAMPLES
    for number, one in enumerate(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    if one and one["kind"] == "TrainingJob" and "training" in one["spec"]
}


def test_there_are_examples_to_look_at() -> None:
    assert len(JOBS) >= 3


@pytest.mark.parametrize("raw", JOBS.values(), ids=JOBS)
def test_both_parts_of_an_example_are_the_whole_and_each_value_is_in_one_of_them(raw: dict[str, Any]) -> None:
    training = TrainingJob.model_validate(raw).spec.training
    assert training
    whole, given = training.to_manifest(), training.to_manifest(defaults=False)
    left = left_open(whole, given)
    assert joined(given, left) == whole
    assert left_open(left, given) == left
    assert left_open(given, whole) is None


@pytest.mark.parametrize(
    ("whole", "given", "left"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, {"b": 2}),
        ({"a": 1}, {"a": 1}, None),
        ({"group": {"a": 1}}, {"group": {}}, {"group": {"a": 1}}),
        ({"group": {"a": False}}, {}, {"group": {"a": False}}),
        ({"list": [{"a": 1, "b": 0}, {"a": 2}]}, {"list": [{"a": 1}, {"a": 2}]}, {"list": [{"b": 0}, {}]}),
        ({"words": ["x", "y"]}, {"words": ["x", "y"]}, None),
    ],
)
def test_what_is_left_open_has_the_form_of_the_whole(whole: Any, given: Any, left: Any) -> None:
    assert left_open(whole, given) == left
    assert joined(given, left) == whole


@pytest.mark.parametrize(
    ("place", "gone"),
    [
        (("a",), True),
        (("list", 0, "b"), True),
        (("list", 1, "b"), False),
        (("list", 7, "b"), False),
        (("given",), False),
        (("given", "below"), False),
        (("a", "below"), False),
    ],
)
def test_only_what_is_left_open_is_dropped(place: tuple[int | str, ...], *, gone: bool) -> None:
    left: dict[str, Any] = {"a": 1, "list": [{"b": 1}, {}], "given": {"x": 1}}
    given = {"given": {}, "list": [{}, {"b": 2}]}
    before = str(left)
    assert dropped(left, given, place) is gone
    assert (str(left) != before) is gone
