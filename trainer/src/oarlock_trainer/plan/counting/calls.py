"""A model of a few blocks, and what each kind of block is called with when the model runs: then blocks run alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from oarlock_trainer.plan.counting.kinds import lists_of, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from oarlock_trainer.plan.counting.kinds import Kind


@dataclass(frozen=True, slots=True)
class Made:
    """A model that was shortened to a few blocks, and one block of each kind."""

    model: nn.Module
    kinds: Mapping[Kind, nn.Module]
    parameters: int
    """Of the whole model, before."""


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of a block."""

    given: tuple[tuple[Any, ...], dict[str, Any]]
    shared: frozenset[int]
    """Storages that other blocks are given as well."""

    def leaves(self, *, frozen: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, cut off from what made them. `frozen`: what is shared needs no gradient."""

        def cut(one: Any) -> Any:
            if not isinstance(one, torch.Tensor):
                return one
            wanted = one.requires_grad and not (frozen and storage(one) in self.shared)
            return one.detach().requires_grad_(wanted)

        cut_off: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(cut, self.given)
        return cut_off

    @property
    def own_bytes(self) -> int:
        """Bytes of the arguments that go from block to block: a block that is recomputed keeps these alone."""
        own = {storage(one): one for one in tensors(self.given) if storage(one) not in self.shared}
        return sum(one.untyped_storage().nbytes() for one in own.values())


def make(
    transformer: Callable[..., nn.Module],
    config: Mapping[str, Any],
    *,
    device: str = "meta",
    dtype: torch.dtype = torch.bfloat16,
    prepare: Callable[[Any], None] = lambda _model: None,
) -> Made:
    """The model of a configuration, all of it in one type. `prepare`: what is done to it before it runs."""
    with torch.device(device):
        model = transformer(**config)
    parameters = sum(one.numel() for one in model.parameters())
    kinds = shortened(model)
    nn.Module.to(model, dtype=dtype).train()
    prepare(model)
    return Made(model, kinds, parameters)


def calls(made: Made, arguments: Mapping[str, Any]) -> dict[Kind, Call]:
    """What each kind of block is called with in a forward pass of the model."""
    given: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def note(block: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        given[block] = positional, named

    blocks = [block for _, several in lists_of(made.model) for block in several]
    hooks = [block.register_forward_pre_hook(note, with_kwargs=True) for block in blocks]
    try:
        made.model(**arguments)
    finally:
        for hook in hooks:
            hook.remove()
    users: dict[int, int] = {}
    for one in given.values():
        for place in {storage(tensor) for tensor in tensors(one)}:
            users[place] = users.get(place, 0) + 1
    shared = frozenset(place for place, number in users.items() if number > 1)
    return {kind: Call(given[block], shared) for kind, block in made.kinds.items()}


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """All tensors among what is nested in tuples, lists and dictionaries."""
    return (one for one in tree_leaves(tree) if isinstance(one, torch.Tensor))


def storage(tensor: torch.Tensor) -> int:
    """Which memory a tensor is a view of, as long as that lives: also where there is none, on the meta device."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - data_ptr is 0 for all of the meta device
