"""When a rank wants a checkpoint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oarlock_trainer.loop.saves import Saves


class Asked:
    """A rank that was asked to save and to drill before the same step."""

    def __init__(self) -> None:
        self.flags = {"saving", "drilling"}

    def take_saving(self) -> bool:
        return self._take("saving")

    def take_drilling(self) -> bool:
        return self._take("drilling")

    def _take(self, flag: str) -> bool:
        asked = flag in self.flags
        self.flags.discard(flag)
        return asked


def test_one_checkpoint_serves_a_drill_and_a_save_of_the_same_step() -> None:
    session: Any = SimpleNamespace(
        job=SimpleNamespace(
            training=SimpleNamespace(checkpoint=SimpleNamespace(keep=1)),
            file=SimpleNamespace(recovery=SimpleNamespace(drill_every_steps=None)),
        ),
        copies=None,
        saved=0,
        resumed=None,
        ranks=SimpleNamespace(rank_info=SimpleNamespace(is_leader=False)),
    )
    saves, stop = Saves(session), Asked()
    assert saves.due(5, stop) == (True, True)  # type: ignore[arg-type]
    assert saves.due(6, stop) == (False, False)  # type: ignore[arg-type]
