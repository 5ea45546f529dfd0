"""The main job on real nodes: real pods, real DeepSpeed, a real crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]
STEPS, EVERY = 40, 10


@pytest.fixture(scope="module")
def calm(jobs: Jobs) -> dict[str, Any]:
    """The end of a job that nothing happened to, in the nodes' network."""
    ports = {"rendezvous": 30500, "status": 30400, "link": 30401}
    jobs.apply("calm", steps=STEPS, every=EVERY, pod={"hostNetwork": True, "ports": ports})
    return jobs.wait_for_end("calm")


@pytest.mark.smoke("trains")
def test_a_gang_in_the_nodes_network_meets_on_ports_of_its_own_and_trains(calm: dict[str, Any]) -> None:
    assert (calm["phase"], calm["attempt"]) == ("Succeeded", 1), calm


@pytest.mark.smoke("resumes by a new attempt")
@pytest.mark.usefixtures("calm")
def test_a_killed_rank_costs_steps_but_changes_no_loss_and_the_model_is_exported(jobs: Jobs) -> None:
    jobs.apply("crash", steps=STEPS, every=EVERY)
    jobs.wait("crash", "a checkpoint", lambda status: "latestCheckpoint" in status)
    jobs.signal_rank("crash-1-1", 3, "KILL")
    crash = jobs.wait_for_end("crash")
    assert (crash["phase"], crash["attempt"]) == ("Succeeded", 2), crash
    assert crash["resolved"]["plan"]["effectiveBatch"] == 4, crash["resolved"]
    resumed = crash["attempts"][1]["resumedFromStep"]
    assert resumed >= EVERY
    assert resumed % EVERY == 0
    assert crash["restarts"]["application"] + crash["restarts"]["infrastructure"] <= 1
    undisturbed, disturbed = jobs.losses("calm"), jobs.losses("crash")
    again = {at: loss for (attempt, at), loss in disturbed.items() if attempt == 2}
    assert sorted(again) == list(range(resumed + 1, STEPS + 1))
    assert again == {at: undisturbed[1, at] for at in again}
    stages = crash["attempts"][1]["stageMilliseconds"]
    assert {"detect", "decide", "drain", "schedule", "start", "firstStep"} <= stages.keys()
    model = jobs.output / crash["output"]["relativePath"] / "model"
    assert (model / "transformer/diffusion_pytorch_model.safetensors").is_file()
    assert crash["output"]["model"] == "/output/crash/model"


def test_unusable_data_fails_with_its_reason_and_is_not_retried(jobs: Jobs) -> None:
    (jobs.output / "data/empty").mkdir(parents=True, exist_ok=True)
    empty = {"name": "photos", "source": {"path": "/output/data/empty"}}
    jobs.apply("nodata", gpusPerNode=1, training={"data": {"datasets": [empty]}})
    status = jobs.wait_for_end("nodata")
    assert (status["phase"], status["reason"], status["attempt"]) == ("Failed", "ConfigurationError", 1)
    assert "photos" in status["message"]
    assert "/output/data/empty" in status["message"]


def test_an_output_without_room_fails_preflight_with_the_numbers(jobs: Jobs) -> None:
    jobs.apply("no-room", output={"minFree": "300Ti"}, recovery={"maxInfrastructureRestarts": 0})
    status = jobs.wait_for_end("no-room")
    assert status["phase"] == "Failed"
    assert "TiB missing" in status["message"], status["message"]
    assert "spec.output.minFree" in status["message"]
    storage = next(c for c in status["conditions"] if c["type"] == "StorageReady")
    assert (storage["status"], storage["reason"]) == ("False", "StorageFault")
