"""What faults are done to: one job on a local cluster, the nodes that are out at the moment, and what is mended when."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from oarlock_local.errors import ClusterError
from tests.e2e.jobs import Jobs


@dataclass(slots=True)
class Field:
    """`trips` is a folder that a rank looks into after each step, for its error."""

    jobs: Jobs
    job: str
    chance: random.Random
    mending: dict[str, tuple[float, Callable[[], None]]] = field(default_factory=dict)
    """By node: when (of the monotonic clock), and how."""

    @property
    def trips(self) -> str:
        """The folder, below the output."""
        return f"trips/{self.job}"

    def pods(self) -> dict[str, str]:
        """Pods of the job that run on nodes that are well, each with its node."""
        path = '{range .items[?(@.status.phase=="Running")]}{.metadata.name} {.spec.nodeName}{"\\n"}{end}'
        label = f"oarlock.dev/job={self.job}"
        found = self.jobs.cluster.kubectl("get", "pods", "-l", label, "-o", f"jsonpath={path}")
        placed = dict(line.split() for line in found.splitlines())
        return {pod: node for pod, node in placed.items() if node not in self.mending}

    def pod(self) -> tuple[str, str]:
        """One of them, and its node. Raises ClusterError where there is none: the next fault is another one."""
        pods = self.pods()
        if not pods:
            raise ClusterError("no pod of the job runs on a node that is well")
        return self.chance.choice(sorted(pods.items()))

    def trainer(self) -> str:
        """A pod that has ranks: none that stands by. Raises ClusterError where there is none."""
        status = self.jobs.status(self.job)
        idle = {f"{self.job}-{status['attempt']}-{index}" for index in status.get("standby", ())}
        pods = sorted(pod for pod in self.pods() if pod.partition("-i")[0] not in idle)
        if not pods:
            raise ClusterError("no pod of the job trains on a node that is well")
        return self.chance.choice(pods)

    def mend_later(self, node: str, seconds: float, how: Callable[[], None]) -> None:
        """Mend a node after that time."""
        self.mending[node] = (time.monotonic() + seconds, how)

    def mend(self, *, everything: bool = False) -> bool:
        """Mend what is due; whether anything was."""
        due = [node for node, (at, _) in self.mending.items() if everything or at <= time.monotonic()]
        for node in due:
            _, how = self.mending.pop(node)
            how()
        return bool(due)
