"""Training whose steps come to nothing ends by itself, and says what to change."""

from __future__ import annotations

import math
from unittest.mock import MagicMock

import pytest

from oarlock_trainer.loop import train
from oarlock_trainer.loop.step_guard import BAD_STEPS, StepGuard
from oarlock_trainer.models.objective import noise_bins


def test_updates_left_out_in_a_row_end_training_though_the_loss_is_finite() -> None:
    guard = StepGuard()
    for skipped in range(1, BAD_STEPS):
        guard.check(loss=0.5, skipped=skipped)
    with pytest.raises(RuntimeError, match=r"10 updates in a row.*gradient.*\(0\.5\).*training\.attention to SDPA"):
        guard.check(loss=0.5, skipped=BAD_STEPS)


def test_an_update_in_between_begins_the_count_anew() -> None:
    guard = StepGuard()
    for step in range(100):
        guard.check(loss=0.5, skipped=step - step // BAD_STEPS)


def test_losses_that_are_not_finite_in_a_row_end_training() -> None:
    guard = StepGuard()
    for _ in range(BAD_STEPS - 1):
        guard.check(loss=math.nan, skipped=0)
    guard.check(loss=0.5, skipped=0)
    for _ in range(BAD_STEPS - 1):
        guard.check(loss=math.inf, skipped=0)
    with pytest.raises(RuntimeError, match=r"loss was not finite for 10 steps: lower optimizer\.learningRate"):
        guard.check(loss=math.inf, skipped=0)


def test_the_loop_ends_where_every_update_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of the loop is a stand-in."""
    session, stop, losses = MagicMock(first=0, total=100, adapters=None), MagicMock(requested=False), MagicMock()
    session.engine.skipped = 0

    def no_update(_rate: float) -> None:
        session.engine.skipped += 1

    session.engine.step = no_update
    session.prefetch.ready = session.prefetch.wait.return_value = True
    session.job.file.recovery.hang_seconds, session.job.training.profile = 180, None
    session.ranks.rank_info.world_size = 1
    session.ranks.sum = list
    session.interval.is_due.return_value = False
    stop.take_saving.return_value = False
    losses.read.return_value = [0.5] * (1 + 2 * noise_bins.BINS)
    saves = MagicMock()
    saves.due.return_value = (False, False)
    saves.told.return_value = []
    for name in ("learning_rate", "_validate", "report", "RankPace"):
        monkeypatch.setattr(train, name, MagicMock())
    monkeypatch.setattr(train, "Saves", lambda _session: saves)
    monkeypatch.setattr(train, "_gradients", lambda *_: losses)
    with pytest.raises(RuntimeError, match="10 updates in a row"):
        train.loop(session, stop, MagicMock())
    assert session.engine.skipped == BAD_STEPS
