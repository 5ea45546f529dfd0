"""Small real jobs for tests: written as people write them, watched through the API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from oarlock_local.cluster import Cluster
from oarlock_local.demo.crash import kill_rank

EXAMPLE = Path(__file__).parents[2] / "examples/trainingjob.yaml"


class Jobs:
    """Jobs of the example's shape on a local cluster whose claim is `output` on this machine."""

    def __init__(self, cluster: Cluster, output: Path) -> None:
        self.cluster = cluster
        self.output = output

    def apply(self, name: str, *, steps: int = 30, every: int = 10, **spec: Any) -> None:
        """Apply the example under another name, shorter."""
        job = yaml.safe_load(EXAMPLE.read_text())
        job["metadata"]["name"] = name
        # YAML 1.1 reads 1.0e-3 as the string that kubectl reads as a number.
        job["spec"]["training"]["optimizer"]["learningRate"] = 0.001
        job["spec"]["training"].update(steps=steps, checkpoint={"intervalSteps": every, "keep": 3})
        for key, value in spec.items():
            job["spec"][key] = {**job["spec"].get(key, {}), **value} if isinstance(value, dict) else value
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    def status(self, name: str) -> dict[str, Any]:
        """The job's status."""
        raw: dict[str, Any] = json.loads(self.cluster.kubectl("get", "trainingjob", name, "-o", "json"))
        status: dict[str, Any] = raw.get("status") or {}
        return status

    def wait(
        self, name: str, what: str, until: Callable[[dict[str, Any]], object], *, seconds: float = 180
    ) -> dict[str, Any]:
        """The status as soon as a condition on it holds."""
        deadline = time.monotonic() + seconds
        while not until(status := self.status(name)):
            assert "completionTime" not in status, f"{name} ended before {what}: {json.dumps(status)[:3000]}"
            assert time.monotonic() < deadline, f"{name}: {what} did not come: {json.dumps(status)[:3000]}"
            time.sleep(0.2)
        return status

    def wait_for_end(self, name: str, *, seconds: float = 240) -> dict[str, Any]:
        """The status of the finished job."""
        return self.wait(name, "the end", lambda status: "completionTime" in status, seconds=seconds)

    def kill_rank(self, name: str, attempt: int, pod: int, rank: int) -> None:
        """Kill one rank's process by SIGKILL."""
        kill_rank(self.cluster, f"{name}-{attempt}-{pod}", rank)

    def losses(self, name: str) -> dict[tuple[int, int], float]:
        """(attempt, step) -> loss, as the trainer wrote them."""
        lines = (self.output / name / "metrics.jsonl").read_text().splitlines()
        return {(line["attempt"], line["step"]): line["loss"] for line in map(json.loads, lines)}

    def pods(self, name: str) -> list[str]:
        """Names of the job's pods."""
        return self.cluster.kubectl("get", "pods", "-l", f"oarlock.dev/job={name}", "-o", "name").split()
