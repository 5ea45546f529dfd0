"""Jobs that keep what they get until they are told to end, and what tests of every gang system wait for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oarlock_local import patience
from tests.e2e.jobs import Jobs

# Runs until its folder has a file `done`; the rank that a file `crash` names, as ATTEMPT-RANK, fails.
PROGRAM = """
until [ -e "$OARLOCK_OUTPUT_DIR/done" ]; do
  [ "$(cat "$OARLOCK_OUTPUT_DIR/crash" 2>/dev/null)" = "$OARLOCK_ATTEMPT-$MACHINE_RANK" ] && exit 1
  sleep 0.2
done
"""
POD = {
    "image": "oarlock.local/host:1",
    "runtimeClassName": "host-userland",
    "sharedMemory": "16Mi",
    "env": [{"name": "OARLOCK_SIMULATE_GPUS", "value": "1"}],
}


@contextmanager
def holding(jobs: Jobs, **place: Any) -> Iterator[Callable[..., None]]:
    """Makes such jobs of two nodes with two GPUs each; all are deleted after the block. `place`: their scheduling."""
    names: list[str] = []

    def hold(name: str, *, nodes: int = 2, **scheduling: Any) -> None:
        names.append(name)
        spec = {
            "nodes": nodes,
            "gpusPerNode": 2,
            "scheduling": {**place, **scheduling},
            "output": {"persistentVolumeClaim": {"claimName": "training-output"}, "minFree": "1Mi"},
            "custom": {"command": ["sh", "-c"], "args": [PROGRAM]},
            "pod": POD,
        }
        job = {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
        jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    try:
        yield hold
    finally:
        jobs.delete(*names)
        for name in names:
            shutil.rmtree(jobs.output / name, ignore_errors=True)


def tell(jobs: Jobs, name: str, file: str, words: str = "") -> None:
    """Write a file into the job's folder, as soon as its agents have made that."""
    folder = jobs.output / name
    jobs.wait(name, "its folder", lambda _: folder.is_dir())
    (folder / file).write_text(words)


def wait_for_phase(jobs: Jobs, name: str, phase: str) -> dict[str, Any]:
    """The status once it has that phase."""
    return jobs.wait(name, phase, lambda status: status.get("phase") == phase)


def wait_for_run(jobs: Jobs, name: str, attempt: int = 1) -> dict[str, Any]:
    """The status once that attempt's containers run."""

    def runs(status: dict[str, Any]) -> bool:
        found = [each for each in status.get("attempts") or [] if each["number"] == attempt]
        return bool(found and "start" in found[0].get("stageMilliseconds", {}))

    return jobs.wait(name, f"attempt {attempt} to run", runs)


def wait_until_gone(jobs: Jobs, kind: str, *names: str) -> None:
    """Until no object of that kind is left that was made for these jobs."""
    for name in names:
        jobs.cluster.kubectl("wait", "--for=delete", kind, "-l", f"oarlock.dev/job={name}", patience.KUBECTL)
