"""Ends of pods that are nobody's doing: a container beside the trainer that runs on, a node that restarts in seconds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

SHIPPER = {
    "name": "shipper",
    "image": "oarlock.local/host:1",
    "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"],
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}


def apply(jobs: Jobs, name: str, script: str, **pod: Any) -> None:
    """A gang of two whose trainer is a shell script."""
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "nodes": 2,
            "gpusPerNode": 2,
            "output": {"persistentVolumeClaim": {"claimName": "training-output"}, "minFree": "1Mi"},
            "custom": {"command": ["sh", "-c", script]},
            "pod": {
                "image": "oarlock.local/host:1",
                "runtimeClassName": "host-userland",
                "sharedMemory": "16Mi",
                "env": [{"name": "OARLOCK_SIMULATE_GPUS", "value": "1"}],
                **pod,
            },
        },
    }
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))


def phases(jobs: Jobs, name: str) -> dict[str, str]:
    """Of the job's pods that are there."""
    told = jobs.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", "json")
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in json.loads(told)["items"]}


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (85, "Failed")])
def test_a_job_is_over_once_no_container_beside_its_trainers_keeps_gpus(jobs: Jobs, code: int, phase: str) -> None:
    name = f"beside-{code}"
    apply(jobs, name, f"echo trained; sleep 2; exit {code}", patch={"containers": [SHIPPER]})
    status = jobs.wait_for_end(name)
    assert status["phase"] == phase, status
    assert not {pod for pod, seen in phases(jobs, name).items() if seen == "Running"}
    jobs.delete(name)


def test_a_node_that_restarts_within_seconds_is_avoided_and_no_fault_of_the_program(jobs: Jobs) -> None:
    home = jobs.operator()["spec"]["nodeName"]
    apply(jobs, "restarted", "sleep 600")
    jobs.wait("restarted", "its ranks", lambda status: status.get("phase") == "Running")
    node = next(name for name in sorted(jobs.nodes("restarted")) if name != home)
    jobs.cluster.fault("reboot", node)
    status = jobs.wait("restarted", "its next attempt", lambda status: status["attempt"] == 2)
    assert status["attempts"][1]["reason"] == "EndUnknown", status["lastFault"]
    assert (status["restarts"]["infrastructure"], status["restarts"]["application"]) == (1, 0)
    assert [(one["name"], one["strict"]) for one in status["avoidedNodes"]] == [(node, False)]
    jobs.delete("restarted")
