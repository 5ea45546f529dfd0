"""A status as a model of oarlock_api, also one that another release wrote."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from oarlock_api.status import TrainingJobStatus


def read_status(raw: Mapping[str, Any]) -> TrainingJobStatus:
    """Read a status. What does not fit this release's model is left out, the smallest part at a time."""
    kept = copy.deepcopy(dict(raw))
    while True:
        try:
            return TrainingJobStatus.model_validate(kept)
        except ValidationError as error:
            _drop(kept, error.errors()[0]["loc"])


def _drop(raw: Any, place: tuple[int | str, ...]) -> None:
    """Take out what stands at a place; where nothing stands there, because something required is missing, what holds it."""
    inside, holder, last = raw, raw, place[0]
    for key in place:
        try:
            inside[key]
        except (LookupError, TypeError):
            break
        inside, holder, last = inside[key], inside, key
    del holder[last]
