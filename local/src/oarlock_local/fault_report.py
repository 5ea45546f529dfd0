"""What `oarlock-local fault` says it has done, and which pods of gangs were on the node.

A fault on a node without such a pod changes no job, and silence would look like a job that does not notice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError
from oarlock_local.faults import FAULTS, Target
from oarlock_local.nvml import GpuFault

_OF_A_GANG = "oarlock.dev/job"
"""The label of all pods of a TrainingJob."""
_ENDED = ("Succeeded", "Failed")


class RunningPod(NamedTuple):
    """A running pod of a gang, as NAMESPACE/NAME, and its node."""

    pod: str
    node: str


def whom_it_meets(cluster: Cluster, kind: str, target: str) -> str:
    """The line about gangs, for a fault of a node or its GPUs; empty for others. Ask before the fault: it ends pods."""
    if FAULTS[kind].target not in (Target.NODE, Target.GPU):
        return ""
    try:
        with ApiServer(cluster.kubeconfig) as api:
            pods = api.get(f"/api/v1/pods?labelSelector={_OF_A_GANG}")["items"]
    except ClusterError as error:
        # A fault of the API server may be on: the next one is done all the same.
        return f"which pods of gangs were on {target} is not known: {error}"
    return gangs_of(target, running_pods(pods))


def what_was_done(kind: str, target: str, what: GpuFault) -> str:
    """The fault in one line: its name, its target, and what was said of a GPU."""
    said = [name if value is True else f"{name} {value}" for name, value in what.items()]
    words = f"done: {kind} {target}".rstrip()
    return f"{words} ({', '.join(said).replace('_', '-')})" if said else words


def gangs_of(node: str, places: Iterable[RunningPod]) -> str:
    """The pods of gangs on a node; where there are none, those on other nodes."""
    ordered = sorted(places)
    if there := [place.pod for place in ordered if place.node == node]:
        namespace, _, first = there[0].partition("/")
        job = re.sub(r"-\d+-\d+(-i\d+)?$", "", first)
        see = f"oarlock why -n {namespace} {job} tells what becomes of it"
        return f"pods of gangs on {node}: {', '.join(there)}; {see}"
    elsewhere = ", ".join(f"{place.pod} on {place.node}" for place in ordered)
    return f"no pod of a gang is on {node}; on other nodes: {elsewhere or 'none'}"


def running_pods(pods: Iterable[Mapping[str, Any]]) -> Iterator[RunningPod]:
    """Where pods are that have a node and have not ended."""
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod["status"].get("phase") not in _ENDED:
            yield RunningPod(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", node)
