"""Ranks that drill stand still for a checkpoint as at an eviction, say how long it took, and train on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.runtime.channel import DRILL_SIGNAL, Event

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep


def test_drills_come_at_their_steps_and_when_asked_for_and_training_goes_on(gang: Gang, tmp_path: Path) -> None:
    def on_event(event: dict[str, Any]) -> None:
        if (event["event"], event["rank"], event.get("step")) == (Event.STEP, 0, 6):
            gang.ask(DRILL_SIGNAL)

    training = gang.training(steps=12, checkpoint={"intervalSteps": 100, "keep": 9})
    run = gang.run(tmp_path, training, on_event=on_event, recovery={"drillEverySteps": 5})
    assert run.codes == {0: 0, 1: 0}, run.failure
    drilled = [event["step"] for event in run.of(Event.DRILL) if event["rank"] == 0]
    asked = [step for step in drilled if step not in {5, 10}]
    assert sorted({*drilled} - {*asked}) == [5, 10]
    assert len(asked) == 1 or 10 in drilled, "a request that comes with a drill's own step is served by it"
    assert all(event["seconds"] > 0 for event in run.of(Event.DRILL))
    assert {checkpoint.step for checkpoint in valid_checkpoints(tmp_path)} == {*drilled, 12}
