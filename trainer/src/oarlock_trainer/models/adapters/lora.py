"""Adapters beside the linear layers of a frozen transformer, of the kind that lora.algorithm names.

They stand in one file, in the format that is theirs where they are loaded: LoRA in diffusers', LoKr in LyCORIS'.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from oarlock_api.weights import AdapterAlgorithm
from oarlock_trainer.models.adapters import lokr, low_rank
from oarlock_trainer.models.adapters.targets import targeted
from oarlock_trainer.models.folder import loading
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from torch import Tensor

    from oarlock_api.weights import Lora
    from oarlock_trainer.models.adapters.targets import Adapters
    from oarlock_trainer.models.family import Presets

FILE = "pytorch_lora_weights.safetensors"
"""Where diffusers' pipelines and SimpleTuner look for adapters in a folder."""


def add_adapters(transformer: nn.Module, settings: Lora, presets: Presets, *, seed: int) -> None:
    """Freeze a transformer and put adapters into it, in place. The same seed draws the same ones on every rank.

    Raises ConfigurationError where a target is no linear layer of the model.
    """
    transformer.requires_grad_(requires_grad=False)
    layers = [name for name, module in transformer.named_modules() if isinstance(module, nn.Linear)]
    names = targeted(settings.targets, layers, presets)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if settings.algorithm is AdapterAlgorithm.LOKR:
            lokr.add(transformer, names, settings, presets)
        else:
            low_rank.add(transformer, names, settings)


@contextmanager
def without_adapters(transformer: nn.Module) -> Iterator[nn.Module]:
    """The transformer, which within this is the base model itself."""
    layers = list(lokr.layers(transformer)) or list(low_rank.layers(transformer))
    for layer in layers:
        layer.enable_adapters(enabled=False)
    try:
        yield transformer
    finally:
        for layer in layers:
            layer.enable_adapters(enabled=True)


def trained_shapes(transformer: nn.Module) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each factor."""
    return {name: tuple(value.shape) for name, value in transformer.named_parameters() if value.requires_grad}


def save(factors: Mapping[str, Tensor], settings: Lora | Adapters, folder: Path) -> None:
    """Write the adapters as float32, as diffusers' load_lora_weights or LyCORIS' create_lycoris_from_weights read them.

    Their strength stands in the factors, so that they are as strong where nobody reads an alpha.

    `factors`: each by its parameter's name. An export reads them from a checkpoint onto the CPU, and waits for no GPU.
    """
    from safetensors.torch import save_file  # noqa: PLC0415

    whole = {name: weight.detach().to("cpu", torch.float32).contiguous() for name, weight in factors.items()}
    said = {"format": "pt"}
    if settings.algorithm is AdapterAlgorithm.LOKR:
        content = lokr.in_file(whole, rank=settings.rank, alpha=settings.alpha)
    else:
        content, about = low_rank.in_file(whole, rank=settings.rank, alpha=settings.alpha)
        said |= about
    folder.mkdir(parents=True, exist_ok=True)
    save_file(content, folder / FILE, metadata=said)


def check_algorithm(settings: Lora, folder: Path) -> None:
    """Raise ConfigurationError where the file of adapters below a folder is none, or of another algorithm: by its header."""
    from safetensors import safe_open  # noqa: PLC0415

    path = folder / FILE
    with loading(folder), safe_open(path, framework="pt") as file:
        is_lokr = any(lokr.MARK in name for name in file.keys())  # noqa: SIM118 - no mapping
    found = AdapterAlgorithm.LOKR if is_lokr else AdapterAlgorithm.LORA
    if found is not settings.algorithm:
        raise ConfigurationError(
            f"training.initFrom: {path} has adapters of the algorithm {found}, lora asks for {settings.algorithm}: set "
            f"lora.algorithm to {found}"
        )


def load(transformer: nn.Module, settings: Lora, folder: Path) -> None:
    """Overwrite the adapters with those that `save`, diffusers, SimpleTuner or LyCORIS wrote below a folder.

    Once, before the first step: the host waits for the GPU with each factor. Raises ConfigurationError where they are of
    another kind, of other modules or of another shape.
    """
    from safetensors import safe_open  # noqa: PLC0415

    check_algorithm(settings, folder)
    path = folder / FILE
    with loading(folder), safe_open(path, framework="pt") as file:
        saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        said = file.metadata() or {}
    factors = {
        _kind(settings).file_name(name): value for name, value in transformer.named_parameters() if value.requires_grad
    }
    if settings.algorithm is AdapterAlgorithm.LOKR:
        saved = lokr.from_file(saved, factors, settings, path)
    else:
        saved = low_rank.from_file(saved, said, factors, settings, path)
    with torch.no_grad():
        for name, factor in factors.items():
            factor.copy_(saved[name])


def _kind(settings: Lora) -> ModuleType:
    return lokr if settings.algorithm is AdapterAlgorithm.LOKR else low_rank
