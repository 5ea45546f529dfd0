"""LoRA: low-rank adapters (PEFT's) beside linear layers of a frozen transformer.

y = W x + (alpha / rank) B A x, where A (rank, in) begins as PEFT draws it and B (out, rank) as zero, so that training begins
at the base model. W stays in bfloat16. A and B are float32 and are the master weights themselves; they are cast to the
input's type where they are used, because PEFT would instead cast the input up and keep that copy for the backward pass, per
adapter.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import Lora

_ADAPTER = "default"
_A = ".lora_A."
_B = ".lora_B."
_PREFIX = "transformer."
_METADATA = "lora_adapter_metadata"
_ALPHA = "lora_alpha"
_OWN_SCALES = ("use_rslora", "alpha_pattern", "use_dora")
"""Of PEFT's configuration: what gives layers another scale than alpha / rank."""
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


def in_file(factors: Mapping[str, Tensor], *, rank: int, alpha: float) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What a file holds, and its metadata: factors of this rank, given by their parameters' names.

    B takes alpha / rank into itself, and the alpha written is the rank: metadata is read by diffusers alone, and whoever
    does not read it, as ComfyUI, multiplies by 1.
    """
    content = {file_name(name): weight * (alpha / rank) if _B in name else weight for name, weight in factors.items()}
    modules = sorted(name.partition(_A)[0] for name in factors if _A in name)
    facts = {"r": rank, _ALPHA: rank, "target_modules": modules}
    return content, {_METADATA: json.dumps({f"{_PREFIX}{key}": value for key, value in facts.items()}, sort_keys=True)}


def from_file(
    saved: Mapping[str, Tensor], said: Mapping[str, str], factors: Mapping[str, Tensor], settings: Lora, path: Path
) -> dict[str, Tensor]:
    """The factors of a file, by their names there, for adapters with the alpha of `settings`, whichever the file has.

    `said`: the file's metadata; without an alpha there it is the rank, as loaders take it. `factors`: those of the model.
    Raises ConfigurationError where the file's are of other modules, of another rank, or scaled in a way of their own.
    """
    told = {key.removeprefix(_PREFIX): value for key, value in json.loads(said.get(_METADATA, "{}")).items()}
    if different := sorted(saved.keys() ^ factors.keys()):
        raise ConfigurationError(
            f"training.initFrom: {path} has adapters for other modules than lora.targets, such as "
            f"{', '.join(different[:_SHOWN])}: set lora.targets to those that it was trained with"
        )
    if any(saved[name].shape != factor.shape for name, factor in factors.items()):
        rank = next(value.shape[0] for name, value in saved.items() if _A in name)
        raise ConfigurationError(
            f"training.initFrom: {path} has adapters of rank {rank}, lora asks for rank {settings.rank}: set lora.rank to "
            "that of the file"
        )
    if odd := [name for name in _OWN_SCALES if told.get(name)]:
        raise ConfigurationError(
            f"training.initFrom: {path} scales its adapters by {' and '.join(odd)}, lora by alpha / rank: merge that file "
            "into the model, and begin from the model"
        )
    by = float(told.get(_ALPHA) or settings.rank) / settings.alpha
    return {name: value.float() * by if _B in name else value.float() for name, value in saved.items()}


def _float32(factor: nn.Linear) -> _Factor:
    """The same factor as float32 on its device, whichever type PEFT gave it."""
    result = _Factor(factor.in_features, factor.out_features, bias=False, device="meta")
    result.weight = nn.Parameter(factor.weight.detach().to(torch.float32))
    return result
