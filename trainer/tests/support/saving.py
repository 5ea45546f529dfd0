"""Savers for tests: one rank that agrees with itself, and an engine whose state is plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from oarlock_api.contract.layout import Owner
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import DataPosition, valid_checkpoints
from oarlock_trainer.checkpoint.writer import NoRoom, SavedCheckpoint, Writer
from oarlock_trainer.data.sampler import Origin
from oarlock_trainer.engine.engine import MASTER, TensorSlice
from oarlock_trainer.runtime.job import RankInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

POSITION = DataPosition(
    fingerprint="f",
    order="o",
    origin=Origin(2, (3, 4)),
    reached=Origin(5, (11, 12), (1, 0)),
    streams=(("a", 9), ("b", 3)),
)
CPU = torch.device("cpu")
RANK_INFO = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)


@dataclass
class Alone:
    """One rank's agreement with itself; the real exchange is tested in runs."""

    rank_info: RankInfo = RANK_INFO
    device: torch.device = CPU

    def decide(self, choose: Callable[[], Any]) -> Any:
        return choose()

    all_or_none = decide

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def shares(self, work: Callable[[], Any], _go_on: Callable[[], None]) -> list[Any]:
        return [work()]

    def barrier(self) -> None:
        """Waits for nobody."""

    def bound_waiting(self, seconds: float) -> None:
        """Waits for nobody."""


class Plain:
    """One of `ranks` engines that share each tensor evenly, as rank `rank`; every element of every slot differs."""

    def __init__(
        self, *, rank: int = 0, ranks: int = 1, filled: float | None = None, sizes: Sequence[int] = (7, 64)
    ) -> None:
        self.weights = nn.ParameterDict(
            {f"p{number}": nn.Parameter(torch.zeros(size)) for number, size in enumerate(sizes)}
        )
        self.model = self.weights
        self.updates = 3
        self._parts = []
        for place, (name, parameter) in enumerate(self.weights.named_parameters()):
            size = parameter.numel()
            own = slice(size * rank // ranks, size * (rank + 1) // ranks)
            for slot in (MASTER, "exp_avg"):
                whole = torch.arange(size, dtype=torch.float32) + 1000 * place + 0.5 * (slot == MASTER)
                values = whole[own].clone() if filled is None else torch.full_like(whole[own], filled)
                self._parts.append(TensorSlice(name=name, slot=slot, start=own.start, values=values))

    def parts(self) -> list[TensorSlice]:
        return self._parts

    def refresh(self) -> None:
        """There are no weights beside the masters."""

    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        assert parts is self._parts
        self.updates = updates


@contextmanager
def saver(
    output: Path,
    *,
    attempt: int = 1,
    number: int = 1,
    keep: int = 5,
    uid: str = "job",
    engine: Any = None,
    ranks: Any = None,
) -> Iterator[Writer]:
    """The writer of round `number` of an attempt, which has taken the output over."""
    fence = Fence(output, Owner(uid, attempt, number))
    fence.take([one.path.name for one in valid_checkpoints(output)])
    writer = Writer(output, fence, ranks or Alone(), engine or Plain(), keep=keep)
    try:
        yield writer
    finally:
        writer.close()


def save(writer: Writer, step: int) -> SavedCheckpoint | NoRoom:
    """Save one checkpoint and wait for it."""
    writer.begin(step, POSITION)
    return writer.finish()


def save_alone(output: Path, *steps: int, **options: Any) -> None:
    """Save checkpoints as an attempt of its own."""
    with saver(output, **options) as writer:
        for step in steps:
            save(writer, step)
