"""What the model families compute, by their value of training.model.family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.flux import code as flux
from oarlock_trainer.models.flux2 import code as flux2
from oarlock_trainer.models.qwenimage import code as qwenimage
from oarlock_trainer.models.sd3 import code as sd3
from oarlock_trainer.models.wan import code as wan
from oarlock_trainer.models.zimage import code as zimage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_api.weights import Model
    from oarlock_trainer.models.family_code import FamilyCode

CODES: Mapping[ModelFamily, FamilyCode] = {
    ModelFamily.FLUX1: flux.CODE,
    ModelFamily.FLUX2: flux2.CODE,
    ModelFamily.Z_IMAGE: zimage.CODE,
    ModelFamily.STABLE_DIFFUSION_3: sd3.CODE,
    ModelFamily.QWEN_IMAGE: qwenimage.CODE,
    ModelFamily.WAN: wan.CODE,
}


def code_of(model: Model) -> FamilyCode:
    """What the family of a job's model computes, in the way of its flavor."""
    code = CODES[model.family]
    return code if model.flavor is None else code.variants.get(model.flavor, code)
