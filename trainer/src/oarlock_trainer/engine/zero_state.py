"""Which elements of the logical state a rank of DeepSpeed's ZeRO keeps, by the way in which each stage lays them out.

Stages 1 and 2 put all parameters of a group one after another and cut that into one partition for each rank. Stage 3
cuts every parameter by itself, and puts a rank's pieces of some parameters (a sub-group) one after another. Both keep the
float32 values of that in one flat tensor, which is what the optimizer sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oarlock_trainer.engine.engine import MASTER, TensorSlice
from oarlock_trainer.engine.slots import FloatSlot, slots
from oarlock_trainer.engine.slots import set_updates as set_updates_of
from oarlock_trainer.engine.slots import updates as updates_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from oarlock_trainer.engine.slots import Slot


class _OwnRun(NamedTuple):
    """`length` elements of the parameter `name` from element `start` on, at element `at` of a flat tensor."""

    name: str
    start: int
    length: int
    at: int


def parts(zero: Any, module: nn.Module, rank: int) -> list[TensorSlice]:
    """This rank's state; `zero` is DeepSpeed's ZeRO optimizer of any stage."""
    return [
        TensorSlice(name=one.name, slot=slot, start=one.start, values=whole[one.at : one.at + one.length])
        for flat, kept in _kept(zero, module, rank)
        for slot, whole in ((name, found.read(0, len(found))) for name, found in _slots(zero, flat).items())
        for one in kept
    ]


def updates(zero: Any) -> int:
    """How many updates the optimizer has counted."""
    return max((updates_of(zero.optimizer, flat) for flat in _flats(zero)), default=0)


def restored(zero: Any, module: nn.Module, rank: int, *, updates: int, parts: Sequence[TensorSlice]) -> None:
    """Take the values of `parts` and the count over, and round the weights that the model computes with. Collective."""
    values = iter(parts)
    for flat, kept in _kept(zero, module, rank):
        for slot in _slots(zero, flat).values():
            # In one piece: a block of 8-bit values that two parameters share is rounded once.
            whole = slot.read(0, len(slot))
            for one in kept:
                whole[one.at : one.at + one.length].copy_(next(values).values)
            slot.write(0, whole)
        set_updates_of(zero.optimizer, flat, updates)
    refresh(zero)


def refresh(zero: Any) -> None:
    """Round the weights that the model computes with anew from the masters. Collective."""
    if _is_stage_3(zero):
        for group in range(len(zero.fp32_partitioned_groups_flat)):
            zero._reassign_or_swap_out_partitioned_parameters(group)  # noqa: SLF001 - what its own loading does
        if always_whole := zero.persistent_parameters:
            always_whole[0].partition(always_whole)
            always_whole[0].all_gather(always_whole)
    else:
        zero.update_lp_params()


def _slots(zero: Any, flat: Tensor) -> dict[str, Slot]:
    return {MASTER: FloatSlot(flat), **slots(zero.optimizer, flat)}


def _flats(zero: Any) -> Sequence[Tensor]:
    flats: Sequence[Tensor] = (
        zero.fp32_partitioned_groups_flat if _is_stage_3(zero) else zero.single_partition_of_fp32_groups
    )
    return flats


def _is_stage_3(zero: Any) -> bool:
    return hasattr(zero, "fp32_partitioned_groups_flat")


def _kept(zero: Any, module: nn.Module, rank: int) -> Iterator[tuple[Tensor, list[_OwnRun]]]:
    """Each flat float32 tensor of this rank, with what lies in it."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return _of_stage_3(zero, names, rank) if _is_stage_3(zero) else _of_stages_1_and_2(zero, names, rank)


def _of_stages_1_and_2(zero: Any, names: Mapping[int, str], rank: int) -> Iterator[tuple[Tensor, list[_OwnRun]]]:
    groups = zip(
        zero.round_robin_bit16_groups, zero.round_robin_bit16_offsets, zero.single_partition_of_fp32_groups, strict=True
    )
    for parameters, offsets, flat in groups:
        first = rank * flat.numel()  # all partitions of a group are of one size
        kept = []
        for parameter, offset in zip(parameters, offsets, strict=True):
            start = max(first - offset, 0)
            end = min(first + flat.numel() - offset, parameter.numel())
            if start < end:
                kept.append(_OwnRun(names[id(parameter)], start, end - start, offset + start - first))
        yield flat, kept


def _of_stage_3(zero: Any, names: Mapping[int, str], rank: int) -> Iterator[tuple[Tensor, list[_OwnRun]]]:
    for parameters, flat in zip(zero.fp16_groups, zero.fp32_partitioned_groups_flat, strict=True):
        at, kept = 0, []
        for parameter in parameters:
            size = parameter.ds_tensor.ds_numel
            start = size * rank
            length = min(size, parameter.ds_numel - start)
            if length > 0:
                kept.append(_OwnRun(names[id(parameter)], start, length, at))
            at += size
        yield flat, kept
