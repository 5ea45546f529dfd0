"""The model families by their value of training.model.family. Without torch: plans are made of what stands here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.encoded import said
from oarlock_trainer.models.family import MODEL_INDEX, TRANSFORMER
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux2.family import FLUX2
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE
from oarlock_trainer.models.sd3.family import STABLE_DIFFUSION_3
from oarlock_trainer.models.wan.family import WAN
from oarlock_trainer.models.zimage.family import Z_IMAGE
from oarlock_trainer.runtime.errors import ConfigurationError, readable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oarlock_api.training import Training
    from oarlock_api.weights import Model, ModelFlavor
    from oarlock_trainer.models.family import Family, Reference, Sight

FAMILIES: Mapping[ModelFamily, Family] = {
    ModelFamily.FLUX1: FLUX1,
    ModelFamily.FLUX2: FLUX2,
    ModelFamily.Z_IMAGE: Z_IMAGE,
    ModelFamily.STABLE_DIFFUSION_3: STABLE_DIFFUSION_3,
    ModelFamily.QWEN_IMAGE: QWEN_IMAGE,
    ModelFamily.WAN: WAN,
}


def family_of(model: Model) -> Family:
    """The family of a job's model, with the numbers of its flavor."""
    family = FAMILIES[model.family]
    return family if model.flavor is None else family.variants.get(model.flavor, family)


def flavor_of(model: Model) -> ModelFlavor:
    """The variant of a job's model: the family's first one where the job names none."""
    return model.flavor or next(iter(family_of(model).flavors))


def reference_of(model: Model) -> Reference | None:
    """What a second picture is to a job's model, if it may be given one."""
    return family_of(model).flavors[flavor_of(model)].reference


def sight_of(model: Model) -> Sight | None:
    """What the text encoder sees of a reference, if it does."""
    return family_of(model).flavors[flavor_of(model)].sight


def masks_text(training: Training) -> bool:
    """Whether padding of texts is cut off and masked: where the job asks for it, or the family knows no other way."""
    return training.objective.attention_mask or family_of(training.model).masks_text


def family_in(model: Path, field: str = "training.model") -> Family:
    """The family of a model in diffusers' layout, which `field` names, by its transformer's configuration.

    With the numbers of a variant where the model's pipeline, or what its transformer is given, tells it from others.
    Raises ConfigurationError where the configuration is of none.
    """
    path = model / TRANSFORMER / "config.json"
    try:
        with readable(field, model):
            config = json.loads(path.read_text(encoding="utf-8"))
            kind = config["_class_name"]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigurationError(f"{field}: {path} is not there: name a model in the layout of diffusers") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{field}: {path} names no class ({error!r}): compare it with the original") from error
    for family in FAMILIES.values():
        if family.transformer.name == kind:
            told = said(model, MODEL_INDEX).get("_class_name")
            return next((one for one in family.variants.values() if told in one.pipelines), _shaped(family, config))
    known = ", ".join(family.name for family in FAMILIES.values())
    raise ConfigurationError(f"{field}: {path} is of the class {kind}, and of no family that is trained here: {known}")


def _shaped(family: Family, config: dict[str, Any]) -> Family:
    """The variant whose models have as much beside the noise; the family itself where nothing is, or none fits."""
    try:
        beside = family.beside(family.architecture(config))
    except (KeyError, TypeError, ValueError):
        return family  # whoever reads all of it says what is wrong
    fits = (one for flavor, one in family.variants.items() if beside and family.flavors[flavor].reference is beside)
    return next(fits, family)
