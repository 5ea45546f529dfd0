"""Which modules of the FLUX.1 transformer get an adapter: names, and presets of names.

The presets are those of SimpleTuner's flux_lora_target. A name stands for all modules that it is the end of, in whole
parts, as in PEFT: so proj_out is that of every single block and the transformer's last one.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oarlock_api.weights import AdapterAlgorithm
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_ATTENTION = ("to_k", "to_q", "to_v", "add_k_proj", "add_q_proj", "add_v_proj", "to_out.0", "to_add_out")
_CONTEXT = ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out")
_CONTEXT_FEED_FORWARD = ("ff_context.net.0.proj", "ff_context.net.2")
_FEED_FORWARD = ("ff.net.0.proj", "ff.net.2", *_CONTEXT_FEED_FORWARD, "proj_mlp", "proj_out")
PRESETS: dict[str, tuple[str, ...]] = {
    "all": _ATTENTION,
    "mmdit": ("to_k", "to_q", "to_v", "to_out.0"),
    "context": _CONTEXT,
    "context+ffs": (*_CONTEXT, *_CONTEXT_FEED_FORWARD),
    "all+ffs": (*_ATTENTION, *_FEED_FORWARD),
    "all+ffs+embedder": ("x_embedder", *_ATTENTION, *_FEED_FORWARD),
    "ai-toolkit": (*_ATTENTION, *_FEED_FORWARD, "norm.linear", "norm1.linear", "norm1_context.linear"),
    "tiny": ("single_transformer_blocks.7.proj_out", "single_transformer_blocks.20.proj_out"),
    "nano": ("single_transformer_blocks.7.proj_out",),
}
DEFAULT = "all+ffs"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Adapters:
    """What a LoRA job's factors are, and what they are multiplied by: alpha / rank."""

    rank: int
    alpha: float
    algorithm: AdapterAlgorithm = AdapterAlgorithm.LORA
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict, compare=False)
    """Of each factor; sizes are compared without it."""


def names_of(targets: Sequence[str]) -> tuple[str, ...]:
    """The names that lora.targets stands for, each once: presets are taken apart, nothing is the default."""
    each = (PRESETS.get(target, (target,)) for target in targets or (DEFAULT,))
    return tuple(dict.fromkeys(name for names in each for name in names))


def matching(name: str, modules: Iterable[str]) -> list[str]:
    """The modules that a name stands for."""
    return [module for module in modules if module == name or module.endswith(f".{name}")]


def targeted(targets: Sequence[str], layers: Sequence[str]) -> list[str]:
    """The model's linear `layers` that lora.targets stands for, each once.

    Raises ConfigurationError where a target is the end of no layer's name, with those that may be meant.
    """
    found: dict[str, None] = {}
    for target in names_of(targets):
        modules = matching(target, layers)
        if not modules:
            ends = {end for layer in layers for end in _ends(layer)}
            near = difflib.get_close_matches(target, [*sorted(ends), *PRESETS], n=_SHOWN)
            hint = f"; {' or '.join(near)} may be meant" if near else ""
            raise ConfigurationError(
                f'training.lora.targets: "{target}" is the end of no linear layer\'s name in this model{hint}. Name layers '
                f"such as attn.to_q, or one of the presets {', '.join(PRESETS)}"
            )
        found |= dict.fromkeys(modules)
    return list(found)


def _ends(layer: str) -> Iterator[str]:
    """What a layer may be called: its name's ends in whole parts, but for those that begin with a number."""
    parts = layer.split(".")
    return (".".join(parts[first:]) for first, part in enumerate(parts) if not part.isdigit())
