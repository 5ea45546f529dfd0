"""A spec is not deeper or larger than everybody can read, and whoever writes one that is hears where."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from oarlock_api.bounds import MOST_BYTES, MOST_LEVELS
from oarlock_api.spec import TrainingJobSpec

SMALL: dict[str, Any] = {
    "output": {"persistentVolumeClaim": {"claimName": "out"}},
    "custom": {"command": ["true"]},
}


def with_patch(patch: object) -> dict[str, Any]:
    return {**SMALL, "pod": {"image": "x", "patch": patch}}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [MOST_LEVELS, 900, 100_000])
def test_a_patch_that_is_too_deep_is_named_whatever_the_depth(levels: int) -> None:
    with pytest.raises(ValidationError) as told:
        TrainingJobSpec.model_validate(with_patch({"x": [nested(levels)]}))
    (mistake,) = told.value.errors(include_input=False)
    assert mistake["msg"] == f"spec.pod.patch is nested more than {MOST_LEVELS} levels deep: write it flatter"


def test_a_spec_is_as_deep_and_as_large_as_it_may_be() -> None:
    deepest = with_patch(nested(MOST_LEVELS - 2))
    assert TrainingJobSpec.model_validate(deepest).pod.patch is not None
    assert TrainingJobSpec.model_validate(with_patch({"x": "y" * (MOST_BYTES - 200)})).pod.patch is not None


def test_a_spec_that_is_too_large_is_told_how_large_it_is() -> None:
    with pytest.raises(ValidationError, match=f"bytes, most of them in pod.patch.x, and at most {MOST_BYTES} are read"):
        TrainingJobSpec.model_validate(with_patch({"x": "y" * MOST_BYTES}))
