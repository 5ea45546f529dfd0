"""All that a step of a storm can be done to, and how it is chosen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from oarlock_local.cluster import Cluster
from tests.chaos.client import Client, Json
from tests.chaos.history import History, JobSeen, asks_for_gpus, has_ended
from tests.chaos.nodes import Kubelets, Machine
from tests.chaos.operators import BELIEVED, Operators
from tests.chaos.reports import Ledger, Planted


@dataclass(slots=True)
class Field:
    """Jobs, pods, nodes and operators, as they are now."""

    cluster: Cluster
    client: Client
    history: History
    kubelets: Kubelets
    operators: Operators
    ledger: Ledger
    chance: random.Random
    port: int
    struck: dict[str, set[str]] = field(default_factory=dict)
    """Jobs that met a fault which may be a program's, alone in its gang, by GPU."""

    def plant(self, pod: Json) -> None:
        """Remember that a GPU under the pod truly breaks, where its word is believed."""
        if not pod["spec"]["containers"][0]["image"].startswith(BELIEVED):
            return
        node = pod["spec"]["nodeName"]
        number = int(pod["metadata"]["labels"]["oarlock.dev/attempt"])
        self.ledger.planted.append(Planted(job_of(pod), number, node, self.kubelets.machines[node].uid))

    def some_job(self) -> JobSeen | None:
        """A job, by chance."""
        found = self.history.living()
        return self.chance.choice(found) if found else None

    def some_machine(self) -> Machine | None:
        """A node that works."""
        found = [each for each in self.kubelets.machines.values() if each.up]
        return self.chance.choice(found) if found else None

    def runs(self, pod: Json) -> bool:
        """Whether its container runs, as far as its kubelet told."""
        return self.kubelets.works_at(pod) and not has_ended(pod) and pod["status"].get("phase") == "Running"

    def some_pod(self, *, gpus: bool = False, any_state: bool = False) -> Json | None:
        """A pod that runs, or in any state; with GPUs where they are asked for."""
        found = [pod for pod in self.history.bodies.values() if any_state or self.runs(pod)]
        found = [pod for pod in found if not gpus or asks_for_gpus(pod)]
        return self.chance.choice(found) if found else None

    def some_gang(self, *, least: int) -> list[Json]:
        """All pods of an attempt, where at least so many and no fewer than there are all run."""
        gangs: dict[tuple[str, str], list[Json]] = {}
        for pod in self.history.bodies.values():
            labels = pod["metadata"]["labels"]
            gangs.setdefault((labels["oarlock.dev/job-uid"], labels["oarlock.dev/attempt"]), []).append(pod)
        found = [pods for pods in gangs.values() if len(pods) >= least and all(map(self.runs, pods))]
        return self.chance.choice(found) if found else []


def job_of(pod: Json) -> str:
    """The job's namespace and name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['labels']['oarlock.dev/job']}"


def names(pods: list[Json]) -> str:
    """For people."""
    return ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods)
