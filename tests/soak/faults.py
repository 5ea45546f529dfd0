"""The kinds of faults of a soak, and how each is mended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from oarlock_api.contract.status import PodPhase
from oarlock_local.demo.install import NAMESPACE
from oarlock_local.errors import ClusterError
from tests.e2e.jobs import ANY_RANK
from tests.soak.field import Field


@dataclass(frozen=True, slots=True)
class Kind:
    """`weight`: how often it comes, beside the others. `restarts`: ranks start anew for it, if any were training.

    `cuts_off`: the pods of the node train on, unheard.
    """

    words: str
    weight: float
    do: Callable[[Field], None]
    restarts: bool = True
    cuts_off: bool = False


def _kill_rank(field: Field) -> None:
    field.jobs.signal_rank(field.trainer(), ANY_RANK, "KILL")


def _hang(field: Field) -> None:
    """Stop a rank that trains: one that starts or saves has half an hour, and would have it here."""
    pod = field.trainer()
    field.jobs.signal_rank(pod, ANY_RANK, "STOP")
    try:
        phase = field.jobs.agent(pod)["phase"]
    except ClusterError:
        phase = "unknown"
    if phase != PodPhase.TRAINING:
        field.jobs.signal_rank(pod, ANY_RANK, "CONT")
        raise ClusterError(f"the rank of {pod} does not train: its phase is {phase}")


def _raise(field: Field) -> None:
    place = field.chance.randrange(2)  # every round has these
    (field.jobs.output / field.trips / f"rank-{place}").touch()


def _kill_agent(field: Field) -> None:
    pod, _ = field.pod()
    field.jobs.cluster.fault("kill-container", f"default/{pod}")


def _delete(*options: str) -> Callable[[Field], None]:
    def do(field: Field) -> None:
        pod, _ = field.pod()
        field.jobs.cluster.kubectl("delete", "pod", pod, "--wait=false", *options)

    return do


def _evict(field: Field) -> None:
    pod, _ = field.pod()
    field.jobs.evict(pod)


def _drain(field: Field) -> None:
    """Cordon a node and evict the job's pod, as `kubectl drain` does; the node is given back."""
    pod, node = _well(field)
    field.jobs.cluster.kubectl("cordon", node)
    field.mend_later(node, field.chance.uniform(5, 20), lambda: _uncordon(field, node))
    field.jobs.evict(pod)


def _gpu(xid: int) -> Callable[[Field], None]:
    def do(field: Field) -> None:
        _, node = _well(field)
        field.jobs.cluster.fault("gpu", node, gpu=0, xid=xid)
        field.mend_later(node, 5, lambda: _mend_gpus(field, node))

    return do


def _out(fault: str, mending: str, least: float, most: float) -> Callable[[Field], None]:
    def do(field: Field) -> None:
        _, node = _well(field)
        field.jobs.cluster.fault(fault, node)
        field.mend_later(node, field.chance.uniform(least, most), lambda: field.jobs.cluster.fault(mending, node))

    return do


MOST_RESTARTS = 2
"""Of an operator's container: a kubelet waits ever longer, up to five minutes, and a new pod for nothing."""


def _well(field: Field) -> tuple[str, str]:
    """A pod and its node, which may be broken: of three, one at a time."""
    if field.mending:
        raise ClusterError("another node is out already")
    return field.pod()


def _uncordon(field: Field, node: str) -> None:
    field.jobs.cluster.kubectl("uncordon", node)


def _mend_gpus(field: Field, node: str) -> None:
    field.jobs.cluster.fault("mend-gpu", node)
    field.jobs.cluster.kubectl("uncordon", node)
    field.jobs.cluster.kubectl("annotate", "node", node, "oarlock.dev/cordoned-", "oarlock.dev/gpu-strikes-")


def _kill_operator(field: Field) -> None:
    pod = field.jobs.operator()
    name, (status,) = pod["metadata"]["name"], pod["status"]["containerStatuses"]
    if status["restartCount"] < MOST_RESTARTS:
        field.jobs.cluster.fault("kill-container", f"{NAMESPACE}/{name}")
    else:
        field.jobs.cluster.kubectl(
            "delete", "pod", name, "-n", NAMESPACE, "--force", "--grace-period=0", "--wait=false"
        )


def _pause_api_server(field: Field) -> None:
    field.jobs.cluster.fault("freeze-apiserver")
    try:
        time.sleep(field.chance.uniform(2, 12))
    finally:
        field.jobs.cluster.fault("thaw-apiserver")


KINDS = {
    "rank-killed": Kind("a rank is killed", 5, _kill_rank),
    "rank-error": Kind("a rank ends with an error", 3, _raise),
    "rank-hangs": Kind("a rank is stopped: a hang", 2, _hang),
    "agent-killed": Kind("an agent is killed", 2, _kill_agent),
    "pod-deleted": Kind("a pod is deleted", 2, _delete()),
    "pod-forced": Kind("a pod is deleted by force", 2, _delete("--force", "--grace-period=0"), cuts_off=True),
    "eviction": Kind("a pod is evicted", 1, _evict),
    "drain": Kind("a node is drained", 1, _drain),
    "xid-94": Kind("a GPU asks for new processes (XID 94)", 2, _gpu(94)),
    "xid-79": Kind("a GPU falls off the bus (XID 79)", 1, _gpu(79)),
    "cut": Kind("a node is cut off", 1, _out("cut", "heal", 10, 40), cuts_off=True),
    "frozen": Kind(
        "a kubelet is frozen", 1, _out("freeze-kubelet", "thaw-kubelet", 5, 30), restarts=False, cuts_off=True
    ),
    "operator-killed": Kind("the operator is killed", 2, _kill_operator, restarts=False),
    "api-paused": Kind("the API server stands still", 1, _pause_api_server, restarts=False),
}
