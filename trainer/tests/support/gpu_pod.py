"""A pod with two pretended GPUs, for tests of the parts of an agent that look after them."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oarlock_local import nvml
from oarlock_trainer.runtime.assignment import Assignment, read_assignment

_JOB = {
    "version": 2,
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
        "PYTHONPATH": str(Path(__file__).parent),  # where hurried_monitor is
        "OARLOCK_CONFIG": str(folder / "job.json"),
        "MACHINE_RANK": "0",
        "MASTER_ADDR": "flux-0",
        "MASTER_PORT": "29500",
    }
    gpus = nvml.Control(folder)
    gpus.set("gpus=2")
    return GpuPod(assignment=read_assignment(environment), environment=environment, gpus=gpus, folder=folder)


def monitors() -> list[int]:
    """Monitors of this process that have not ended. It has other children, such as the ranks of other tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes()  # empty where it has ended
        except OSError:
            continue
        if parent == os.getpid() and b"monitor" in command:
            found.append(int(path.name))
    return found


def end_monitors() -> None:
    """Kill and collect them."""
    for pid in monitors():
        with suppress(ProcessLookupError, ChildProcessError):  # it ended meanwhile, or its owner collected it
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
