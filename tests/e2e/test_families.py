"""Families beside FLUX.1, which all other files train: 20 steps on two real nodes, a rank killed, beside a calm run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock_api.weights import ModelFamily
from oarlock_trainer.models.families import FAMILIES
from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

STEPS, EVERY = 20, 5
PACED: dict[str, Any] = {"steps": STEPS, "every": EVERY, "pace": 0.1}
"""It is killed before it is done."""


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            one, marks=pytest.mark.smoke("trains another family") if one is ModelFamily.Z_IMAGE else (), id=one
        )
        for one in ModelFamily
        if one is not ModelFamily.FLUX1
    ],
)
def test_a_family_trains_on_two_nodes_and_goes_on_in_place_after_a_kill_with_the_losses_of_a_calm_run_on_one(
    jobs: Jobs, family: ModelFamily
) -> None:
    trainer, model = Path(sys.prefix) / "bin/oarlock-trainer", f"models/{family.lower()}-tiny"
    subprocess.run([trainer, f"make-tiny-{FAMILIES[family].slug}", jobs.output / model], check=True, umask=0o022)
    training = {"model": {"family": family, "path": f"/output/{model}"}}
    calm, killed = f"{family.lower()}-calm", f"{family.lower()}-killed"
    jobs.apply(killed, **PACED, gpusPerNode=1, training=training, recovery={"inPlace": "Auto"})
    jobs.apply(calm, steps=STEPS, every=EVERY, nodes=1, gpusPerNode=2, training=training)
    jobs.wait(killed, "a checkpoint", lambda status: "latestCheckpoint" in status)
    jobs.signal_rank(f"{killed}-1-1", 1, "KILL")
    ended = jobs.wait_for_end(killed)
    assert (ended["phase"], ended["attempt"]) == ("Succeeded", 1), ended
    (round_,) = ended["rounds"]
    assert round_["resumedFromStep"] in range(EVERY, STEPS, EVERY)
    assert jobs.wait_for_end(calm)["phase"] == "Succeeded"
    assert jobs.losses_by_step(killed) == jobs.losses_by_step(calm)
    assert list((jobs.output / killed / "model/transformer").glob("*.safetensors"))
