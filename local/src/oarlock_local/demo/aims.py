"""Whom the demo's faults strike, as the gang stands now, and what is to be seen then. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from oarlock_local.errors import ClusterError

Object = Mapping[str, Any]
_RANK = "oarlock.dev/rank"
AGAIN = "it trains again, from the newest state in memory, after 10 to 30 s"

IN_SECONDS = "all ranks start anew in their pods, and train again, from the newest state in memory, within seconds"


class Place(NamedTuple):
    """A pod of the job, and its node."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class Aims:
    """Where the gang is, by rank, and which nodes could take its place."""

    gang: tuple[Place, ...]
    free: tuple[str, ...]
    operators: frozenset[str]
    """The nodes of the operator: a cut there would strike who is to act."""

    @classmethod
    def of(cls, pods: Iterable[Object], *, nodes: Sequence[Object], operators: Iterable[Object]) -> Aims:
        """By what the cluster has of these. Raises ClusterError where no pod of the job runs."""
        found = sorted((pod for pod in pods if _runs(pod)), key=lambda pod: int(pod["metadata"]["labels"][_RANK]))
        if not found:
            raise ClusterError("no pod of the job runs: wait until it trains again, or repair everything")
        gang = tuple(Place(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in found)
        taken = {place.node for place in gang}
        free = tuple(node["metadata"]["name"] for node in nodes if _takes_pods(node))
        return cls(
            gang=gang,
            free=tuple(name for name in free if name not in taken),
            operators=frozenset(pod["spec"]["nodeName"] for pod in operators if _runs(pod)),
        )

    @property
    def first(self) -> Place:
        """Of rank 0."""
        return self.gang[0]

    @property
    def last(self) -> Place:
        """The last pod."""
        return self.gang[-1]

    @property
    def apart(self) -> Place:
        """The last pod that is not on the operator's node; the last one where all are."""
        return next((place for place in reversed(self.gang) if place.node not in self.operators), self.last)

    @property
    def goes_on(self) -> str:
        """What becomes of a job that loses a node."""
        if not self.free:
            return (
                "the job waits, for no other node takes pods: repair everything, and uncordon nodes on the page first"
            )
        return f"the job goes on with {self.free[0]}: {AGAIN}"


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _takes_pods(node: Object) -> bool:
    """Whether it is ready and not cordoned."""
    ready = (one for one in node["status"].get("conditions") or [] if one["type"] == "Ready")
    return not node["spec"].get("unschedulable") and any(one["status"] == "True" for one in ready)
