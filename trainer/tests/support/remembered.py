"""What a rank's state in memory is compared by, and read back with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from remembering import Facts, alone
from saving import Alone, Plain

from oarlock_trainer.checkpoint.memory.resume import resume

if TYPE_CHECKING:
    from oarlock_trainer.checkpoint.format import Checkpoint


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
