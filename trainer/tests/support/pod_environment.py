"""The environment of a rank host in a pod, by the agent's own function: what tests start with it meets what ships."""

from __future__ import annotations

import os

from oarlock_api.contract.job_file import JobFile
from oarlock_trainer.agent.ranks import rank_environment
from oarlock_trainer.agent.ranks.accelerate_config import plan_launch
from oarlock_trainer.runtime.assignment import Assignment, Pod

_GIVEN = dict(os.environ)
"""Of this process, before tests that import torch settled it for the CPU: DeepSpeed reads that, and children inherit it."""


def of_pod(gpus: int) -> dict[str, str]:
    """The whole environment, on a node with so many GPUs."""
    job = JobFile(
        job="flux",
        namespace="default",
        job_uid="job-uid",
        attempt=1,
        nodes=1,
        gpus_per_node=gpus,
        output_directory="/nowhere",
        training={},
    )
    pod = Pod(rank=0, job="flux", attempt=1, pod_uid="pod-uid", node="")
    assignment = Assignment(pod=pod, job=job, master_address="127.0.0.1", master_port=29500, simulate_gpus=False)
    return _GIVEN | rank_environment.shared(plan_launch(assignment), _GIVEN) | {"GPUS_PER_NODE": str(gpus)}
