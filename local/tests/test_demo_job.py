"""The job of the demo that stays goes on in place: its faults end rounds, as its buttons say."""

from __future__ import annotations

from pathlib import Path

from oarlock_api.recovery import InPlace
from oarlock_api.trainingjob import TrainingJob
from oarlock_local.demo.kept import STEPS, job


def test_the_demo_that_stays_trains_for_hours_and_starts_ranks_anew_in_their_pods() -> None:
    made = TrainingJob.model_validate(job(Path(__file__).parents[2]))
    assert made.spec.training
    assert made.spec.training.steps == STEPS
    assert made.spec.recovery.in_place is InPlace.AUTO
    assert made.spec.recovery.memory.every_steps == "Auto"
