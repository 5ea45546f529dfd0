"""A trainer of somebody else's on real nodes: the agent comes into its pods, and it is followed and healed as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

NAME = "own"
PROGRAM = Path(__file__).parent / "own_trainer.py"
JOB: dict[str, Any] = {
    "apiVersion": "oarlock.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": NAME},
    "spec": {
        "nodes": 2,
        "gpusPerNode": 2,
        "output": {"persistentVolumeClaim": {"claimName": "training-output"}, "minFree": "1Mi"},
        "custom": {"command": ["python3"], "args": [str(PROGRAM)], "workingDir": "/output"},
        "pod": {
            "image": "oarlock.local/host:1",
            "runtimeClassName": "host-userland",
            "sharedMemory": "16Mi",
            "env": [{"name": "OARLOCK_SIMULATE_GPUS", "value": "1"}],
        },
    },
}


def test_a_command_that_dies_on_one_node_is_started_again_on_all_and_goes_on_from_its_own_checkpoint(
    jobs: Jobs,
) -> None:
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(JOB))
    status = jobs.wait(NAME, "its steps", lambda status: (status.get("progress") or {}).get("step") == 12)
    assert (status["phase"], status["summary"]["step"]) == ("Running", "12/30")
    assert status["latestCheckpoint"]["relativePath"] == f"{NAME}/checkpoint-10"
    health = jobs.agent(f"{NAME}-1-1")["health"]
    assert (health["state"], len(health["gpus"])) == ("Healthy", 2)
    pid = (jobs.output / NAME / "pid-1-1").read_text()
    jobs.cluster.kubectl("exec", f"{NAME}-1-1", "--", "sh", "-c", f"kill -KILL {pid}")
    status = jobs.wait_for_end(NAME)
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2), status
    assert status["attempts"][1]["reason"] == "ProcessKilled"
    assert (status["attempts"][1]["resumedFromStep"], status["attempts"][1]["lostSteps"]) == (10, 2)
    assert status["lastFault"]["evidence"][0].endswith(
        "the command was killed by SIGKILL: out of memory on the node, if nobody killed it by hand"
    )
    assert (status["restarts"]["application"], status["progress"]["step"]) == (1, 30)
    assert (status["output"]["path"], "model" in status["output"]) == (f"/output/{NAME}", False)
    jobs.delete(NAME)
