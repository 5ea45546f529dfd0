"""A storage of the data that is away while ranks are asked to leave: they save, and leave, and do not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

pytestmark = pytest.mark.deep


def leave_while_paused(gang: Gang, output: Path, pause: Path, *, after: int, **fields: Any) -> Run:
    """An attempt whose storage pauses after so many steps, for good, and that is asked to leave while it waits."""
    asked = False

    def on_event(event: dict[str, Any]) -> None:
        nonlocal asked
        if event["event"] == Event.STEP and event["step"] == after:
            pause.touch()
        if event["event"] == Event.PHASE and event["name"] == "Training" and not after:
            pause.touch()
        if pause.exists() and event["event"] in {Event.WORKING, Event.WAITING} and not asked:
            asked = True
            gang.ask_to_leave()

    photos = {"name": "photos", "source": {"path": str(gang.pictures)}, "imageEmbeds": {"mode": "OnTheFly"}}
    training = gang.training(steps=100, data=gang.data(datasets=[photos]), **fields)
    return gang.run(output, training, on_event=on_event, environment={"OARLOCK_PAUSE": str(pause)})


@pytest.mark.parametrize("checkpoint", [{}, {"intervalSteps": 1}], ids=["not saved before", "saved before"])
def test_ranks_that_are_asked_to_leave_while_they_wait_for_their_data_save_and_leave(
    gang: Gang, tmp_path: Path, pause: Path, checkpoint: dict[str, int]
) -> None:
    output = tmp_path / "job"
    left = leave_while_paused(gang, output, pause, after=2, checkpoint=checkpoint)
    assert set(left.codes.values()) == {ExitCode.LEFT_ON_REQUEST}, gang.log()
    done = max(left.losses)
    assert 2 <= done < 100
    assert valid_checkpoints(output)[0].step == done
    assert f"saved step {done} and left on request" in left.failure
