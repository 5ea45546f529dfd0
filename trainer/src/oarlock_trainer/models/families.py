"""The model families by their value of training.model.family. Without torch: plans are made of what stands here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.family import TRANSFORMER
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oarlock_api.weights import Model
    from oarlock_trainer.models.family import Family

FAMILIES: Mapping[ModelFamily, Family] = {ModelFamily.FLUX1: FLUX1}


def family_of(model: Model) -> Family:
    """The family of a job's model."""
    return FAMILIES[model.family]


def family_in(model: Path) -> Family:
    """The family of a model in diffusers' layout, by what its transformer's configuration says. Raises ConfigurationError."""
    path = model / TRANSFORMER / "config.json"
    try:
        kind = json.loads(path.read_text(encoding="utf-8"))["_class_name"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"training.model: {path} names no class ({error!r}): compare it with the original"
        ) from error
    for family in FAMILIES.values():
        if family.transformer.name == kind:
            return family
    known = ", ".join(family.name for family in FAMILIES.values())
    raise ConfigurationError(
        f"training.model: {path} is of the class {kind}, and of no family that is trained here: {known}"
    )
