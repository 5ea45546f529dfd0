"""A run goes on where a checkpoint finds no room, says so, and says when that is over; and how it was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from gang import Gang, Run


@pytest.fixture(scope="module")
def told(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What rank 0 of a run tells whose storage is full for the checkpoint of step 4 of 8."""
    output = tmp_path_factory.mktemp("full")
    file = output / "checkpoints/.tmp-step-4-a1/rank-00000.state"

    def fill_up(event: dict[str, Any]) -> None:
        """Let a file of it be the device that has no room; a start would remove what lay there before."""
        if event["event"] == Event.PLAN and not file.is_symlink():
            file.parent.mkdir(parents=True)
            file.symlink_to("/dev/full")

    training = gang.training(steps=8, checkpoint={"intervalSteps": 4})
    run: Run = gang.run(output, training, on_event=fill_up)
    assert set(run.codes.values()) == {0}, gang.log()
    return [event for event in run.events if event.get("rank") == 0]


def test_a_checkpoint_without_room_degrades_a_run_until_the_next_one_is_saved(told: list[dict[str, Any]]) -> None:
    degraded = [(one["reason"], one["message"]) for one in told if one["event"] == Event.DEGRADED]
    degraded = [
        (reason, message) for reason, message in degraded if reason != "SlowRank"
    ]  # of a machine that is shared
    assert [reason for reason, _ in degraded] == ["CheckpointStorageFull"] * 2
    assert degraded[0][1].startswith("no room for the checkpoint of step 4, ")
    assert "lower checkpoint.keep" in degraded[0][1]
    assert degraded[1][1] == "", "step 8 was saved"


def test_the_plan_is_told_before_the_first_step(told: list[dict[str, Any]]) -> None:
    kinds = [one["event"] for one in told]
    assert kinds.index(Event.PLAN) < kinds.index(Event.STEP)
    plan = told[kinds.index(Event.PLAN)]
    assert (plan["effectiveBatch"], plan["zeroStage"]) == (4, 1)
    assert plan["memoryBytes"] > 0
