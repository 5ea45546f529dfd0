"""Which modules of a transformer get an adapter: names, and the family's presets of names.

A name stands for all modules that it is the end of, in whole parts, as in PEFT.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oarlock_api.weights import AdapterAlgorithm
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oarlock_trainer.models.family import Presets

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Adapters:
    """What a LoRA job's factors are, and what they are multiplied by: alpha / rank."""

    rank: int
    alpha: float
    algorithm: AdapterAlgorithm = AdapterAlgorithm.LORA
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict, compare=False)
    """Of each factor; sizes are compared without it."""


def names_of(targets: Sequence[str], presets: Presets) -> tuple[str, ...]:
    """The names that lora.targets stands for, each once: presets are taken apart, nothing is the default."""
    each = (presets.names.get(target, (target,)) for target in targets or (presets.default,))
    return tuple(dict.fromkeys(name for names in each for name in names))


def matching(name: str, modules: Iterable[str]) -> list[str]:
    """The modules that a name stands for."""
    return [module for module in modules if module == name or module.endswith(f".{name}")]


def targeted(targets: Sequence[str], layers: Sequence[str], presets: Presets) -> list[str]:
    """The model's linear `layers` that lora.targets stands for, each once.

    Raises ConfigurationError where a target is the end of no layer's name, with those that may be meant.
    """
    found: dict[str, None] = {}
    for target in names_of(targets, presets):
        modules = matching(target, layers)
        if not modules:
            ends = {end for layer in layers for end in _ends(layer)}
            near = difflib.get_close_matches(target, [*sorted(ends), *presets.names], n=_SHOWN)
            hint = f"; {' or '.join(near)} may be meant" if near else ""
            raise ConfigurationError(
                f'training.lora.targets: "{target}" is the end of no linear layer\'s name in this model{hint}. Name layers '
                f"such as attn.to_q, or one of the presets {', '.join(presets.names)}"
            )
        found |= dict.fromkeys(modules)
    return list(found)


def _ends(layer: str) -> Iterator[str]:
    """What a layer may be called: its name's ends in whole parts, but for those that begin with a number."""
    parts = layer.split(".")
    return (".".join(parts[first:]) for first, part in enumerate(parts) if not part.isdigit())
