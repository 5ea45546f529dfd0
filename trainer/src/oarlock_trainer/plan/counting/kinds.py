"""Which blocks a transformer has, and which of them are alike.

Blocks are the members of the lists of modules that are the model's own children. Two are alike where their modules have the
same classes and their parameters the same names and shapes: in Stable Diffusion 3.5 one list has three kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator


_LEFT = 2
"""Of each kind: only then is an argument that all blocks share told from what goes from one to the next."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Blocks that are alike. `name`: of their list, with the place of the first where the list has several kinds."""

    name: str
    number: int
    parameters: int
    """Of one block."""

    @property
    def left(self) -> int:
        """How many of them a shortened model has."""
        return min(self.number, _LEFT)


def lists_of(model: nn.Module) -> Iterator[tuple[str, nn.ModuleList]]:
    """The model's lists of blocks by name, in its own order."""
    for name, child in model.named_children():
        if isinstance(child, nn.ModuleList) and len(child):
            yield name, child


def shortened(model: nn.Module) -> dict[Kind, nn.Module]:
    """Leave the model two blocks of each kind, or one where there is one, and return the last that is left of each."""
    found: dict[Kind, nn.Module] = {}
    for name, blocks in list(lists_of(model)):
        alike: dict[object, list[int]] = {}
        for place, block in enumerate(blocks):
            alike.setdefault(_likeness(block), []).append(place)
        for places in alike.values():
            several = f".{places[0]}" if len(alike) > 1 else ""
            last = blocks[places[:_LEFT][-1]]
            size = sum(one.numel() for one in last.parameters())
            found[Kind(name + several, len(places), size)] = last
        left = sorted(place for places in alike.values() for place in places[:_LEFT])
        setattr(model, name, nn.ModuleList([blocks[place] for place in left]))
    return found


def _likeness(block: nn.Module) -> object:
    classes = tuple(type(one) for one in block.modules())
    return classes, tuple((name, tuple(one.shape)) for name, one in block.named_parameters())
