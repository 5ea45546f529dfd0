"""LoRA: low-rank adapters (PEFT's) beside linear layers of a frozen transformer.

y = W x + (alpha / rank) B A x, where A begins as PEFT draws it and B as zero, so that training begins at the base model.
W stays in bfloat16. A and B are float32 and are the master weights themselves; they are cast to the input's type where
they are used, because PEFT would instead cast the input up and keep that copy for the backward pass, per adapter.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import Lora

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


def add(transformer: nn.Module, names: list[str], settings: Lora) -> None:
    """Put adapters beside the named linear layers, in place. Draws from torch's generators."""
    peft = import_peft()
    configuration = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=names,
    )
    peft.inject_adapter_in_model(configuration, transformer, adapter_name=_ADAPTER)
    for layer in layers(transformer):
        layer.cast_input_dtype_enabled = False
        for factors in (layer.lora_A, layer.lora_B):
            factors[_ADAPTER] = _float32(factors[_ADAPTER])


def layers(transformer: nn.Module) -> Iterator[Any]:
    """Each of PEFT's layers."""
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415

    return (module for module in transformer.modules() if isinstance(module, BaseTunerLayer))


def file_name(name: str) -> str:
    """A factor's name in diffusers' files, by its parameter's name."""
    return f"{_PREFIX}{name.replace(f'.{_ADAPTER}.', '.')}"


def metadata(factors: Iterable[str], *, rank: int, alpha: float) -> dict[str, str]:
    """What a file says beside the factors, which are given by their parameters' names."""
    modules = sorted(name.partition(_A)[0] for name in factors if _A in name)
    facts = {"r": rank, "lora_alpha": alpha, "target_modules": modules}
    return {_METADATA: json.dumps({f"{_PREFIX}{key}": value for key, value in facts.items()}, sort_keys=True)}


def check_file(
    saved: Mapping[str, Tensor], said: Mapping[str, str], factors: Mapping[str, Tensor], settings: Lora, path: Path
) -> None:
    """Raise ConfigurationError where a file's adapters are of other modules, of another rank or of another scale.

    `said`: the file's metadata; `factors`: those of the model, by their names in files.
    """
    told = json.loads(said.get(_METADATA, "{}"))
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


def _float32(factor: nn.Linear) -> _Factor:
    result = _Factor(factor.in_features, factor.out_features, bias=False, device="meta")
    result.weight = nn.Parameter(factor.weight.detach().to(torch.float32))
    return result
