"""The parameters that a transformer has, by its configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.family import TRANSFORMER
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.transformer import empty

if TYPE_CHECKING:
    from pathlib import Path


def parameter_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each parameter of the transformer in a diffusers directory, in their order. Reads no weights."""
    with loading(model / TRANSFORMER):
        return {name: tuple(parameter.shape) for name, parameter in empty(model).named_parameters()}
