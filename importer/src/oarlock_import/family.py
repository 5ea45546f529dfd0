"""The model family that a configuration of SimpleTuner is read for: its words in `tables/` are this family's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.families import FAMILIES

if TYPE_CHECKING:
    from oarlock_trainer.models.family import Family

FAMILY: Family = FAMILIES[ModelFamily.FLUX1]
