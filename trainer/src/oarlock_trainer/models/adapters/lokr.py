"""LoKr: Kronecker products as adapters beside linear layers of a frozen transformer, in LyCORIS' format.

y = W x + s (W1 x W2) x, with s = alpha / rank where a factor is a product of that rank, else 1. W2 begins as zero, so that
training begins at the base model. W stays as it is; the factors are float32 and are the master weights themselves.

The product is never made: (W1 x W2) x is W1 X W2^T, where X is x as a matrix. LyCORIS' own layers and PEFT's make it, and
keep it for the backward pass, the weights of the whole model once more (docs/decisions/0013).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from oarlock_trainer.models.adapters.lokr_shapes import FACTORS, W1, W1_A, W1_B, W2, W2_A, W2_B, factor_shapes
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import Lora
    from oarlock_trainer.models.family import Presets

MARK = ".lokr_"
"""Stands in the name of each factor."""
_PREFIX = "lycoris_"
_ALPHA = "alpha"
_SHOWN = 3


def add(transformer: nn.Module, names: list[str], settings: Lora, presets: Presets) -> None:
    """Put an adapter beside each named linear layer, in place. Draws from torch's generator of the CPU."""
    for name in names:
        parent, _, child = name.rpartition(".")
        layer: Any = transformer.get_submodule(name)
        setattr(transformer.get_submodule(parent), child, KroneckerLinear(name, layer, settings, presets))


def layers(transformer: nn.Module) -> Iterator[KroneckerLinear]:
    """Each layer with an adapter."""
    return (module for module in transformer.modules() if isinstance(module, KroneckerLinear))


class KroneckerLinear(nn.Module):
    """A frozen linear layer and its adapter. (..., in) -> (..., out), with in = c d, out = a b, W1 (a, c) and W2 (b, d)."""

    def __init__(self, name: str, layer: nn.Linear, settings: Lora, presets: Presets) -> None:
        """`name`: the layer's in the transformer."""
        super().__init__()
        self.base_layer = layer
        self.enabled = True
        self.dropout = settings.dropout
        shapes = factor_shapes(
            name, outputs=layer.out_features, inputs=layer.in_features, settings=settings, presets=presets
        )
        self.scale = 1.0 if is_whole(shapes) else settings.alpha / settings.rank
        for factor in FACTORS:
            drawn = _drawn(factor, shapes[factor]).to(layer.weight.device) if factor in shapes else None
            self.register_parameter(factor, None if drawn is None else nn.Parameter(drawn))

    def forward(self, values: Tensor) -> Tensor:
        """The layer's product and the adapter's, in the type of the values."""
        result: Tensor = self.base_layer(values)
        if not self.enabled:
            return result
        if self.dropout:
            values = functional.dropout(values, self.dropout, self.training)
        # Made and scaled in float32, and rounded as a whole.
        first = (_whole(self, W1, W1_A, W1_B) * self.scale).to(values.dtype)
        second = _whole(self, W2, W2_A, W2_B).to(values.dtype)
        product: Tensor = _Product.apply(values, first, second)  # type: ignore[no-untyped-call]
        return result + product

    def enable_adapters(self, enabled: bool) -> None:  # noqa: FBT001 - as PEFT's layers have it
        """Whether the adapter's product is added from now on."""
        self.enabled = enabled


def is_whole(factors: Container[str]) -> bool:
    """Whether neither factor of a layer is a product: then there is no rank, and LyCORIS takes no alpha."""
    return W1 in factors and W2 in factors


def file_name(name: str) -> str:
    """A factor's name in LyCORIS' files, by its parameter's name."""
    module, _, factor = name.rpartition(".")
    return f"{_PREFIX}{module.replace('.', '_')}.{factor}"


def in_file(factors: Mapping[str, Tensor], *, rank: int, alpha: float) -> dict[str, Tensor]:
    """What a file holds: the factors, which are given by their parameters' names, and an alpha of each layer.

    The first factor takes alpha / rank into itself, and the alpha written is the rank: LyCORIS' merge_to multiplies by what
    they make twice, its forward pass once (4.1).
    """
    content = {file_name(name): factor for name, factor in factors.items()}
    for module, names in _modules(content):
        if not is_whole(names):
            _scale_first(content, module, alpha / rank)
        content[f"{module}.{_ALPHA}"] = torch.tensor(1.0 if is_whole(names) else float(rank))
    return content


def from_file(
    saved: Mapping[str, Tensor], factors: Mapping[str, Tensor], settings: Lora, path: Path
) -> dict[str, Tensor]:
    """The factors of a file, by their names there, for adapters with the alpha of `settings`, whichever the file has.

    `factors`: those of the model. Raises ConfigurationError where the file's are of other modules or of another shape.
    """
    found = {name: value.float() for name, value in saved.items() if not name.endswith(f".{_ALPHA}")}
    if different := sorted(found.keys() ^ factors.keys()):
        raise ConfigurationError(
            f"training.initFrom: {path} has other factors or modules than lora asks for, such as "
            f"{', '.join(different[:_SHOWN])}: set lora.targets, lora.rank and lora.lokr to those that it was trained with"
        )
    for name, factor in factors.items():
        if found[name].shape != factor.shape:
            raise ConfigurationError(
                f"training.initFrom: {path} has {name} in the shape {tuple(found[name].shape)}, lora asks for "
                f"{tuple(factor.shape)}: set lora.rank and lora.lokr to those that it was trained with"
            )
    for module, names in _modules(found):
        alpha = saved.get(f"{module}.{_ALPHA}")
        if not is_whole(names) and alpha is not None:
            _scale_first(found, module, float(alpha) / settings.alpha)
    return found


def _scale_first(content: dict[str, Tensor], module: str, by: float) -> None:
    name = f"{module}.{W1}" if f"{module}.{W1}" in content else f"{module}.{W1_A}"
    content[name] = content[name] * by


def _modules(content: Mapping[str, Tensor]) -> Iterator[tuple[str, set[str]]]:
    """(name in files, names of its factors) of each layer."""
    found: dict[str, set[str]] = {}
    for name in content:
        module, _, factor = name.rpartition(".")
        found.setdefault(module, set()).add(factor)
    return iter(found.items())


def _drawn(factor: str, shape: tuple[int, int]) -> Tensor:
    """How LyCORIS begins: one factor of the update is zero, the others are drawn as those of linear layers."""
    weight = torch.zeros(shape)
    return weight if factor in (W2, W2_B) else nn.init.kaiming_uniform_(weight, a=math.sqrt(5))


def _whole(layer: Any, whole: str, left: str, right: str) -> Tensor:
    """A factor (rows, columns) as float32, multiplied out where it is itself a product."""
    factor: Tensor | None = getattr(layer, whole)
    return getattr(layer, left) @ getattr(layer, right) if factor is None else factor


def _matrix(values: Tensor, rows: int) -> Tensor:
    """(..., rows x columns) -> (..., rows, columns)."""
    return values.view(*values.shape[:-1], rows, -1)


class _Product(torch.autograd.Function):
    """(W1 x W2) x for x in the last dimension. Keeps x alone, as LoRA does, and makes X W2^T once more to go back.

    x (..., c d), W1 (a, c), W2 (b, d) -> (..., a b), all of one type: autograd takes W1's and W2's gradients on to float32.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, first: Tensor, second: Tensor) -> Tensor:
        ctx.save_for_backward(values, first, second)
        return torch.matmul(first, functional.linear(_matrix(values, first.shape[1]), second)).flatten(-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, first, second = ctx.saved_tensors
        matrix, gradient = _matrix(values, first.shape[1]), _matrix(gradients[0], first.shape[0])
        # Shapes: matrix (..., c, d), gradient (..., a, b).
        inner = torch.matmul(first.t(), gradient)  # (..., c, b)
        rows = functional.linear(matrix, second).transpose(-2, -1).flatten(0, -2)  # (... b, c)
        return (
            torch.matmul(inner, second).flatten(-2),
            gradient.transpose(-2, -1).flatten(0, -2).t() @ rows,
            inner.flatten(0, -2).t() @ matrix.flatten(0, -2),
        )
