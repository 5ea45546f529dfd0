"""Faults of a gang on nodes that work: what they cost, whom they blame, and that training goes on from a checkpoint.

The tests share one gang, which each of them finds in training and leaves in training; the last one deletes it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.history import StoryType, find_stacks, read_story
from oarlock_api.contract.status import PodStatus
from oarlock_local import patience
from oarlock_local.demo.install import NAMESPACE, RELEASE
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.credentials import load_configuration
from oarlock_operator.model.observation import Defaults
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources, observe
from oarlock_operator.observe.progress import ProgressReader, Route
from oarlock_operator.process.keys import gang_keys
from tests.e2e.jobs import EVERY, SMALL, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

Status = dict[str, Any]
GANG = "steady"


@pytest.fixture(scope="module")
def gang_name(jobs: Jobs) -> Iterator[str]:
    yield GANG
    jobs.delete(GANG)


@pytest.fixture
def gang(jobs: Jobs, gang_name: str) -> Status:
    """The status of a gang of two nodes that trains: the one that the last test left, or a new one."""
    if jobs.phase(gang_name) != "Running":
        jobs.delete(gang_name)
        jobs.apply(gang_name, recovery={"hangSeconds": 15, "backoffSeconds": 1}, **SMALL)
    return jobs.wait_for_checkpoint_of(gang_name, 1)


def trains_again(jobs: Jobs, before: Status) -> Status:
    """The status once the gang trains in the next attempt, from a checkpoint that it had."""
    after = jobs.wait_for_checkpoint_of(GANG, before["attempt"] + 1)
    assert after["attempt"] == before["attempt"] + 1
    assert after["attempts"][-1]["number"] == after["attempt"]
    assert after["attempts"][-1]["resumedFromStep"] >= before["latestCheckpoint"]["step"]
    jobs.assert_no_loss_changed(GANG)
    return after


def restarts(status: Status) -> tuple[int, int]:
    """What application and infrastructure are charged with."""
    return status["restarts"]["application"], status["restarts"]["infrastructure"]


def assert_saved_and_left(jobs: Jobs, after: Status, reasons: set[str]) -> None:
    """All that was done was saved before the pods left, and no budget was charged for it."""
    attempt = after["attempts"][-1]
    assert attempt["reason"] in reasons
    assert attempt["lostSteps"] == 0
    assert after["lastFault"]["class"] == "Requested"
    assert restarts(after) == (0, 0)
    assert after["restarts"]["voluntary"] == 1, "the checkpoint since the last one has forgotten the others"
    assert any(f"Attempt {after['attempt']} starts" in e["message"] for e in jobs.events(GANG, attempt["reason"]))


def test_a_pod_that_is_deleted_by_force_costs_one_infrastructure_restart_though_the_operator_dies_in_the_recovery(
    jobs: Jobs, gang: Status
) -> None:
    operator = jobs.operator()
    jobs.cluster.kubectl("delete", "pod", f"{GANG}-{gang['attempt']}-1", "--force", "--grace-period=0")
    status = jobs.wait(GANG, "the next attempt", lambda status: status["attempt"] > gang["attempt"])
    assert "stage" in status["recovery"]
    jobs.cluster.fault("kill-container", f"{NAMESPACE}/{operator['metadata']['name']}")
    after = trains_again(jobs, gang)
    assert after["attempts"][-1]["reason"] == "PodDisappeared"
    assert (after["lastFault"]["class"], after["lastFault"]["rank"]) == ("PeerLost", 1)
    assert restarts(after) == (0, 1)
    assert after["restartCount"] == gang["restartCount"] + 1
    assert after["avoidedNodes"] == []
    assert jobs.events(GANG, "PodDisappeared")
    now = jobs.operator()
    assert now["metadata"]["uid"] == operator["metadata"]["uid"]
    killed = [status["containerStatuses"][0]["restartCount"] for status in (operator["status"], now["status"])]
    assert killed[1] == killed[0] + 1


def test_a_pod_that_is_deleted_by_hand_saves_first_and_costs_no_budget(jobs: Jobs, gang: Status) -> None:
    jobs.cluster.kubectl("delete", "pod", f"{GANG}-{gang['attempt']}-1", "--wait=false")
    assert_saved_and_left(jobs, trains_again(jobs, gang), {"LeftOnRequest"})


def test_an_evicted_pod_saves_first_and_costs_no_budget(jobs: Jobs, gang: Status) -> None:
    jobs.evict(f"{GANG}-{gang['attempt']}-0")
    assert_saved_and_left(jobs, trains_again(jobs, gang), {"Evicted", "LeftOnRequest"})


def test_a_rank_that_hangs_is_ended_by_its_agent_which_keeps_the_stacks_of_all_ranks(jobs: Jobs, gang: Status) -> None:
    pod = f"{GANG}-{gang['attempt']}-1"
    jobs.signal_rank(pod, 1, "STOP")
    while not 0 < jobs.agent(pod)["step"] % EVERY < EVERY - 1:
        # In a checkpoint, or about to begin one: those may take longer than a step.
        jobs.signal_rank(pod, 1, "CONT")
        jobs.signal_rank(pod, 1, "STOP")
    after = trains_again(jobs, gang)
    assert after["attempts"][-1]["reason"] == "Hang"
    assert after["lastFault"]["class"] == "Hang"
    assert restarts(after) == (1, 0)
    for pod_rank in 0, 1:
        kept = [path.read_text() for path in find_stacks(jobs.output / GANG) if f"-{pod_rank}-2" in path.name]
        assert f"rank {pod_rank}:\n" in kept[-1]
        assert "File " in kept[-1]
    decisions = {line.attempt: line for line in read_story(jobs.output / GANG) if line.type == StoryType.DECISION}
    assert decisions[gang["attempt"]].reason == "Hang"
    report = jobs.output / GANG / f".oarlock/reports/{gang['attempt']}-1.json"
    told = json.loads(report.read_text())
    assert (told["code"], told["firstErrorRank"]) == (ExitCode.HANG, 1)
    assert "stopped by a signal" in told["summary"]


@pytest.mark.smoke("is suspended and resumed")
def test_a_suspended_gang_saves_and_goes_on_from_there_when_it_is_resumed(jobs: Jobs, gang: Status) -> None:
    jobs.change(GANG, suspend=True)
    suspended = jobs.wait(GANG, "suspension", lambda status: status["phase"] == "Suspended")
    condition = next(c for c in suspended["conditions"] if c["type"] == "Suspended")
    assert condition["status"] == "True"
    saved = suspended["latestCheckpoint"]["step"]
    assert saved == max(jobs.checkpoints(GANG))[0] == max(jobs.losses(GANG))[1]
    assert saved >= gang["progress"]["step"]
    jobs.change(GANG, suspend=False)
    after = trains_again(jobs, gang)
    assert (after["attempts"][-1]["reason"], after["attempts"][-1]["resumedFromStep"]) == ("Resumed", saved)
    assert after["attempts"][-1]["lostSteps"] == 0
    assert after["restartCount"] == gang["restartCount"]


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


def test_a_running_job_is_seen_from_outside_and_leaves_no_pod_when_it_is_deleted(jobs: Jobs, gang: Status) -> None:
    seen = asyncio.run(seen_from_outside(jobs.cluster.kubeconfig, ("default", GANG)))
    assert seen is not None, "an operator outside the cluster reaches /status through the API server"
    assert seen.figures.step is not None
    assert seen.figures.step >= gang["latestCheckpoint"]["step"]
    jobs.cluster.kubectl("delete", "trainingjob", GANG, "--wait=false")
    jobs.cluster.kubectl("wait", "--for=delete", "pod", "-l", f"oarlock.dev/job={GANG}", patience.KUBECTL)
    assert jobs.pods(GANG) == []
