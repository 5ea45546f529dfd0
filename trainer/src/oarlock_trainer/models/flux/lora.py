"""LoRA: low-rank adapters (PEFT's) beside linear layers of a frozen transformer.

y = W x + (alpha / rank) B A x, where A begins as PEFT draws it and B as zero, so that training begins at the base model.
W stays in bfloat16. A and B are float32 and are the master weights themselves; they are cast to the input's type where
they are used, because PEFT would instead cast the input up and keep that copy for the backward pass, per adapter.
"""

from __future__ import annotations

import difflib
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.models.flux.folder import loading
from oarlock_trainer.models.flux.lora_targets import PRESETS, matching, names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from oarlock_api.weights import Lora
    from oarlock_trainer.checkpoint.format import Adapters

FILE = "pytorch_lora_weights.safetensors"
"""Where diffusers' pipelines look for adapters in a folder."""
_ADAPTER = "default"
_A = ".lora_A."
_PREFIX = "transformer."
_METADATA = "lora_adapter_metadata"
_SHOWN = 3


class _Factor(nn.Linear):
    """A or B of an adapter."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(..., in) in any type -> (..., out) in the same."""
        return functional.linear(values, self.weight.to(values.dtype))


def import_peft() -> Any:
    """PEFT, without the libraries of quantized layers that it takes along where they are installed; returns the module."""
    hidden = [name for name in ("bitsandbytes", "torchao") if name not in sys.modules]
    sys.modules |= dict.fromkeys(hidden)  # type: ignore[arg-type]  # None = not to be had
    try:
        import peft  # noqa: PLC0415 - seconds that only LoRA jobs pay
        from peft import import_utils  # noqa: PLC0415

        for is_available in (
            import_utils.is_bnb_available,
            import_utils.is_bnb_4bit_available,
            import_utils.is_torchao_available,
        ):
            is_available()  # it asks again when it makes layers, and remembers the answer
    finally:
        for name in hidden:
            del sys.modules[name]
    return peft


def add_adapters(transformer: nn.Module, settings: Lora, *, seed: int) -> None:
    """Freeze a transformer and put adapters into it, in place. The same seed draws the same A on every rank.

    Raises ConfigurationError where a target is no linear layer of the model.
    """
    peft = import_peft()
    transformer.requires_grad_(requires_grad=False)
    names = _targets(transformer, settings)
    configuration = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=names,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(configuration, transformer, adapter_name=_ADAPTER)
    for _, layer in _layers(transformer):
        layer.cast_input_dtype_enabled = False
        for factors in (layer.lora_A, layer.lora_B):
            factors[_ADAPTER] = _float32(factors[_ADAPTER])


@contextmanager
def without_adapters(transformer: nn.Module) -> Iterator[nn.Module]:
    """The transformer, which within this is the base model itself."""
    layers = [layer for _, layer in _layers(transformer)]
    for layer in layers:
        layer.enable_adapters(enabled=False)
    try:
        yield transformer
    finally:
        for layer in layers:
            layer.enable_adapters(enabled=True)


def factor_shape(name: str, elements: int, settings: Lora | Adapters) -> tuple[int, int]:
    """Shape of an A or a B, by its name."""
    other = elements // settings.rank
    return (settings.rank, other) if _A in name else (other, settings.rank)


def save(factors: Mapping[str, torch.Tensor], settings: Lora | Adapters, folder: Path) -> None:
    """Write the adapters as float32, in the format that FluxPipeline.load_lora_weights of diffusers reads.

    `factors`: each A and B by its parameter's name.
    """
    from safetensors.torch import save_file  # noqa: PLC0415

    adapters = {
        f"{_PREFIX}{_file_name(name)}": weight.detach().to("cpu", torch.float32).contiguous()
        for name, weight in factors.items()
    }
    modules = sorted(name.partition(_A)[0] for name in factors if _A in name)
    facts = {"r": settings.rank, "lora_alpha": settings.alpha, "target_modules": modules}
    told = {f"{_PREFIX}{key}": value for key, value in facts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(adapters, folder / FILE, metadata={"format": "pt", _METADATA: json.dumps(told, sort_keys=True)})


def load(transformer: nn.Module, settings: Lora, folder: Path) -> None:
    """Overwrite the adapters with those that `save`, diffusers or SimpleTuner wrote below a folder.

    Raises ConfigurationError where they are of other modules, of another rank or of another scale.
    """
    from safetensors import safe_open  # noqa: PLC0415

    path = folder / FILE
    with loading(folder), safe_open(path, framework="pt") as file:
        saved = {name.removeprefix(_PREFIX): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        told = json.loads((file.metadata() or {}).get(_METADATA, "{}"))
    factors = _factors(transformer)
    if different := sorted(saved.keys() ^ factors.keys()):
        raise ConfigurationError(
            f"training.initFrom: {path} has adapters for other modules than lora.targets, such as "
            f"{', '.join(different[:_SHOWN])}: set lora.targets to those that it was trained with"
        )
    found = (told.get(f"{_PREFIX}r"), told.get(f"{_PREFIX}lora_alpha"))
    rank = next(iter(saved.values())).shape[0]
    if any(saved[name].shape != factor.shape for name, factor in factors.items()) or found not in {
        (None, None),
        (settings.rank, settings.alpha),
    }:
        raise ConfigurationError(
            f"training.initFrom: {path} has adapters of rank {found[0] or rank} and alpha {found[1] or 'unknown'}, lora asks "
            f"for rank {settings.rank} and alpha {settings.alpha:g}: set lora.rank and lora.alpha to those of the file"
        )
    with torch.no_grad():
        for name, factor in factors.items():
            factor.copy_(saved[name])


def _layers(transformer: nn.Module) -> Iterator[tuple[str, Any]]:
    """(name, layer) of each of PEFT's layers."""
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415

    return ((name, module) for name, module in transformer.named_modules() if isinstance(module, BaseTunerLayer))


def _factors(transformer: nn.Module) -> dict[str, nn.Parameter]:
    """Each A and B, by the name that it has in diffusers' files (without the pipeline's part)."""
    return {
        _file_name(name): parameter for name, parameter in transformer.named_parameters() if parameter.requires_grad
    }


def _file_name(name: str) -> str:
    return name.replace(f".{_ADAPTER}.", ".")


def _float32(factor: nn.Linear) -> _Factor:
    result = _Factor(factor.in_features, factor.out_features, bias=False, device="meta")
    result.weight = nn.Parameter(factor.weight.detach().to(torch.float32))
    return result


def _targets(transformer: nn.Module, settings: Lora) -> list[str]:
    """The modules that get an adapter, by their full names."""
    linear = [name for name, module in transformer.named_modules() if isinstance(module, nn.Linear)]
    found: dict[str, None] = {}
    for target in names_of(settings.targets):
        modules = matching(target, linear)
        if not modules:
            ends = {part for name in linear for part in (name, name.rpartition(".")[2])}
            near = difflib.get_close_matches(target, [*sorted(ends), *PRESETS], n=_SHOWN)
            hint = f"; {' or '.join(near)} may be meant" if near else ""
            raise ConfigurationError(
                f'training.lora.targets: "{target}" is the end of no linear layer\'s name in this model{hint}. Name layers '
                f"such as attn.to_q, or one of the presets {', '.join(PRESETS)}"
            )
        found |= dict.fromkeys(modules)
    return list(found)
