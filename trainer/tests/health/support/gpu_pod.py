"""A pod with two pretended GPUs, for tests of the parts of an agent that look after them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_local import nvml
from oarlock_trainer.agent.assignment import Assignment, read_assignment

if TYPE_CHECKING:
    from pathlib import Path

_JOB = {
    "version": 1,
    "job": "flux",
    "namespace": "default",
    "job_uid": "uid-of-job",
    "attempt": 1,
    "nodes": 1,
    "gpus_per_node": 2,
    "output_directory": "/output/flux",
    "training": {"method": "Full"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """What its agent is told, and what drives its GPUs."""

    assignment: Assignment
    environment: dict[str, str]
    gpus: nvml.Control
    folder: Path


def create(folder: Path) -> GpuPod:
    """A pod with everything below one folder."""
    (folder / "job.json").write_text(json.dumps(_JOB))
    environment = {
        "NVML_LIBRARY": str(nvml.install(folder)),
        "OARLOCK_CONFIG": str(folder / "job.json"),
        "MACHINE_RANK": "0",
        "MASTER_ADDR": "flux-0",
        "MASTER_PORT": "29500",
    }
    gpus = nvml.Control(folder)
    gpus.set("gpus=2")
    return GpuPod(assignment=read_assignment(environment), environment=environment, gpus=gpus, folder=folder)
