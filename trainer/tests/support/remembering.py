"""A node's memory for tests: one rank of it, in a folder of the disk's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saving import POSITION, Alone, Plain

from oarlock_trainer.checkpoint.memory.memory import Memory
from oarlock_trainer.checkpoint.memory.resume import resume
from oarlock_trainer.runtime.job import RankInfo

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.checkpoint.format import Checkpoint


class Facts:
    """What the memory asks of a job."""

    node = "n1"

    def __init__(self, uid: str = "job", attempt: int = 1, round_: int = 1) -> None:
        self.file = self
        self.job_uid, self.attempt, self.round = uid, attempt, round_


def remember(
    folder: Path,
    *,
    every: int | None = 1,
    keep: int | None = None,
    made_by: int | None = None,
    engine: Any = None,
    ranks: Any = None,
    ring: bool = False,
    round_: int = 1,
) -> Memory:
    job: Any = Facts(round_=round_)
    return Memory(folder, job, ranks or Alone(), engine or Plain(), every=every, keep=keep, made_by=made_by, ring=ring)


def step(memory: Memory, number: int, *, told: tuple[float, float, float] | None = None) -> tuple[float, float, float]:
    """One step of a rank that is alone: what it told, once the state of the step before is whole."""
    own = memory.told(number)
    memory.before_update()
    memory.go_on(told or own, number, seconds=1.0, position=lambda _: POSITION)
    memory.before_update()
    return own


def alone(rank: int, ranks: int) -> Alone:
    """One rank of several that hears only itself."""
    return Alone(RankInfo(rank=rank, local_rank=rank, world_size=ranks, local_world_size=ranks))


def one_of_nodes(rank: int, nodes: int) -> Alone:
    """The one rank of a node of several that hears only itself."""
    return Alone(RankInfo(rank=rank, local_rank=0, world_size=nodes, local_world_size=1))


def found(folder: Path, number: int, *, job: Any = None) -> Checkpoint | None:
    return resume(job or Facts(), Alone(), folder, number)  # type: ignore[arg-type]


def values(engine: Plain) -> list[list[float]]:
    return [part.values.tolist() for part in engine.parts()]


def settle(memory: Any) -> None:
    """Wait until the newest state is whole."""
    memory._writing.wait(None)


class Heard(Alone):
    """Rank 0, and what the others tell."""

    def __init__(self, *others: Any) -> None:
        super().__init__(alone(0, 1 + len(others)).rank_info)
        self.others = others

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]
