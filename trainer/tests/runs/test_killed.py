"""Runs whose ranks are killed at random moments, again and again: what is left always loads, and little is lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.checkpoint.format import valid_checkpoints

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep

KILLS = 10
INTERVAL = 2


class Killer:
    """Kills a rank after some events, and knows the newest checkpoint that was announced."""

    def __init__(self, gang: Gang, after: int, rank: int) -> None:
        self.gang, self.after, self.rank = gang, after, rank
        self.step = self.saved = 0

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "step":
            self.step = max(self.step, event["step"])
        if event["event"] == "checkpoint":
            self.saved = event["step"]
        if event["event"] in {"phase", "resumed", "step", "checkpoint"}:
            self.after -= 1
            if not self.after:
                self.gang.kill(self.rank)


def test_killed_ten_times_at_random_moments_a_run_ends_with_the_losses_of_one_that_was_not(
    gang: Gang, tmp_path: Path
) -> None:
    steps = 30
    settings = gang.training(steps=steps, batchSize=1, checkpoint={"intervalSteps": INTERVAL})
    calm = gang.run(tmp_path / "calm", settings)
    assert calm.codes == {0: 0, 1: 0}, gang.log()
    chance = random.Random(11)  # noqa: S311
    losses: dict[int, float] = {}
    saved = resumes = 0
    for attempt in range(1, KILLS + 2):
        after = chance.randrange(3, 14) if attempt <= KILLS else 10**9
        killer = Killer(gang, after, chance.randrange(2))
        run = gang.run(tmp_path / "killed", settings, attempt=attempt, on_event=killer)
        if saved and run.losses:
            assert min(run.losses) > saved, (attempt, saved)
            resumes += 1
        losses |= run.losses
        newest = valid_checkpoints(tmp_path / "killed")
        saved = newest[0].step if newest else 0
        assert saved >= killer.saved
        assert killer.step - saved <= 2 * INTERVAL  # the interval, and the steps that a save takes to be one
        if -9 not in run.codes.values():
            break
    assert resumes > 3
    assert set(run.codes.values()) == {0}, gang.log()
    assert losses == calm.losses
