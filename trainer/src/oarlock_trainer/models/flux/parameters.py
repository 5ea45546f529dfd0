"""The parameters that a FLUX.1 transformer has, by its configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.flux.classes import transformer_class
from oarlock_trainer.models.flux.folder import TRANSFORMER, loading

if TYPE_CHECKING:
    from pathlib import Path


def parameter_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each parameter of the transformer in a diffusers directory, in their order. Reads no weights."""
    import torch  # noqa: PLC0415

    flux = transformer_class()
    with loading(model / TRANSFORMER), torch.device("meta"):
        transformer = flux.from_config(flux.load_config(model / TRANSFORMER, local_files_only=True))
    return {name: tuple(parameter.shape) for name, parameter in transformer.named_parameters()}
