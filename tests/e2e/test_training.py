"""The main job on real nodes: real pods, real DeepSpeed, a real crash."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local.demo.install import NAMESPACE, RELEASE
from oarlock_operator.kube.cluster import Cluster, load_configuration
from oarlock_operator.model.observation import Defaults
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources, observe
from oarlock_operator.observe.progress import ProgressReader, Route
from oarlock_operator.process.keys import gang_keys

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_api.contract.status import PodStatus
    from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]


def step(status: dict[str, Any]) -> int:
    return (status.get("progress") or {}).get("step") or 0


def test_a_killed_rank_costs_steps_but_changes_no_loss_and_the_model_is_exported(jobs: Jobs) -> None:
    jobs.apply("calm", steps=40, every=10)
    calm = jobs.wait_for_end("calm")
    assert (calm["phase"], calm["attempt"]) == ("Succeeded", 1), calm
    jobs.apply("crash", steps=40, every=10)
    jobs.wait("crash", "a checkpoint", lambda status: "latestCheckpoint" in status)
    jobs.signal_rank("crash-1-1", 3, "KILL")
    crash = jobs.wait_for_end("crash")
    assert (crash["phase"], crash["attempt"]) == ("Succeeded", 2), crash
    assert crash["resolved"]["plan"]["effectiveBatch"] == 4, crash["resolved"]
    resumed = crash["attempts"][1]["resumedFromStep"]
    assert resumed >= 10
    assert resumed % 10 == 0
    assert crash["restarts"]["application"] + crash["restarts"]["infrastructure"] <= 1
    undisturbed, disturbed = jobs.losses("calm"), jobs.losses("crash")
    again = {at: loss for (attempt, at), loss in disturbed.items() if attempt == 2}
    assert sorted(again) == list(range(resumed + 1, 41))
    assert again == {at: undisturbed[1, at] for at in again}
    stages = crash["attempts"][1]["stageMilliseconds"]
    assert {"detect", "decide", "drain", "schedule", "start", "firstStep"} <= stages.keys()
    model = jobs.output / crash["output"]["relativePath"] / "model"
    assert (model / "transformer/diffusion_pytorch_model.safetensors").is_file()
    assert crash["output"]["model"] == "/output/crash/model"


def test_a_job_of_one_node_trains_without_a_name_and_without_a_service(jobs: Jobs) -> None:
    jobs.apply("alone", steps=10, every=10, nodes=1)
    status = jobs.wait_for_end("alone")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1), status
    assert "service/alone" not in jobs.cluster.kubectl("get", "services", "-o", "name").split()


def test_a_gang_in_the_nodes_network_meets_on_ports_of_its_own_and_trains(jobs: Jobs) -> None:
    ports = {"rendezvous": 30500, "status": 30400, "link": 30401}
    jobs.apply("hostnet", steps=10, every=10, pod={"hostNetwork": True, "ports": ports})
    status = jobs.wait_for_end("hostnet")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1), status


def test_unusable_data_fails_with_its_reason_and_is_not_retried(jobs: Jobs) -> None:
    (jobs.output / "data/empty").mkdir(parents=True, exist_ok=True)
    jobs.apply(
        "nodata", training={"data": {"datasets": [{"name": "photos", "source": {"path": "/output/data/empty"}}]}}
    )
    status = jobs.wait_for_end("nodata")
    assert (status["phase"], status["reason"], status["attempt"]) == ("Failed", "ConfigurationError", 1)
    assert "photos" in status["message"]
    assert "/output/data/empty" in status["message"]


def test_an_output_without_room_fails_preflight_with_the_numbers(jobs: Jobs) -> None:
    jobs.apply("full", output={"minFree": "300Ti"}, recovery={"maxInfrastructureRestarts": 0})
    status = jobs.wait_for_end("full")
    assert status["phase"] == "Failed"
    assert "TiB missing" in status["message"], status["message"]
    assert "spec.output.minFree" in status["message"]
    storage = next(c for c in status["conditions"] if c["type"] == "StorageReady")
    assert (storage["status"], storage["reason"]) == ("False", "StorageFault")


async def seen_from_outside(kubeconfig: Path, key: tuple[str, str]) -> PodStatus | None:
    configuration, _ = await load_configuration(kubeconfig)
    cluster = Cluster(configuration)
    keys = await gang_keys(cluster, file=None, namespace=NAMESPACE, name=f"{RELEASE}-operator-key")
    reader = ProgressReader(cluster, Route.PROXY, clock=time.monotonic, keys=keys)
    try:
        sources = Sources(cluster=cluster, progress=reader, gangs=GangReader(cluster), clock=lambda: datetime.now(UTC))
        found = await observe(sources, Memory(), key, defaults=Defaults(trainer_image=""), waited=0.0)
        assert found is not None
        return found[0].progress
    finally:
        await reader.close()
        await cluster.close()


def test_a_running_job_is_seen_from_outside_and_leaves_no_pod_when_it_is_deleted(jobs: Jobs) -> None:
    jobs.apply("gone", steps=2000)
    jobs.wait("gone", "the first step", lambda status: step(status) > 0)
    seen = asyncio.run(seen_from_outside(jobs.cluster.kubeconfig, ("default", "gone")))
    assert seen is not None, "an operator outside the cluster reaches /status through the API server"
    assert seen.figures.step is not None
    jobs.cluster.kubectl("delete", "trainingjob", "gone", "--wait=false")
    jobs.cluster.kubectl("wait", "--for=delete", "pod", "-l", "oarlock.dev/job=gone", "--timeout=120s")
    assert jobs.pods("gone") == []
