"""How many parameters a transformer has and how many of them are trained, from its configuration alone.

No weights are read and torch is not imported: the answer is needed before anything heavy is begun.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_api.weights import AdapterAlgorithm
from oarlock_trainer.models.adapters.lokr_shapes import factor_shapes
from oarlock_trainer.models.adapters.targets import targeted
from oarlock_trainer.models.family import TRANSFORMER
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.weights import Lora
    from oarlock_trainer.models.architecture import Architecture, Linear
    from oarlock_trainer.models.family import Family, Presets


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of parameters. Where adapters are trained, `frozen` are all of the model's own."""

    trained: int
    frozen: int
    largest: int
    """Of one trained tensor: no bucket may be smaller."""


def read_architecture(model: Path, family: Family) -> Architecture:
    """Architecture of the transformer in a diffusers directory. Raises ConfigurationError where there is none."""
    path = model / TRANSFORMER / "config.json"
    try:
        return family.architecture(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        folders = ", ".join((*family.networks, *family.tokenizers))
        raise ConfigurationError(
            f"training.model: {path} cannot be read ({error!r}): model.path must be a {family.name} directory in the layout "
            f"of diffusers, with {folders}"
        ) from error


def whole(shape: Architecture) -> Parameters:
    """All parameters are trained."""
    layers = shape.linears
    return Parameters(
        trained=sum(one.parameters for one in layers) + shape.others,
        frozen=0,
        largest=max(one.inputs * one.outputs for one in layers),
    )


def adapters(shape: Architecture, settings: Lora, presets: Presets) -> Parameters:
    """The factors beside every targeted Linear are trained.

    LoRA: two matrices, (inputs, rank) and (rank, outputs) (Hu et al. 2021). LoKr: those of lokr_shapes. Raises
    ConfigurationError where a target is no layer.
    """
    layers = {one.name: one for one in shape.linears}
    names = targeted(settings.targets, list(layers), presets)
    sizes = [size for name in names for size in _factors(layers[name], settings, presets)]
    return Parameters(trained=sum(sizes), frozen=whole(shape).trained, largest=max(sizes))


def _factors(layer: Linear, settings: Lora, presets: Presets) -> list[int]:
    """Elements of each factor of an adapter."""
    if settings.algorithm is AdapterAlgorithm.LORA:
        return [settings.rank * layer.inputs, settings.rank * layer.outputs]
    shapes = factor_shapes(layer.name, outputs=layer.outputs, inputs=layer.inputs, settings=settings, presets=presets)
    return [math.prod(one) for one in shapes.values()]
