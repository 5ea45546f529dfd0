"""The faults of bench/recovery.py: each by a new attempt, and where it can be in the pods that live, or with one new pod."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.jobs import Jobs

from oarlock_local.demo.crash import kill_rank

HANG_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Fault:
    """`do` hits a pod on a node; `cordons`: the node is to be cordoned for it. `recovery`: of the job's spec.

    `rank`: of the pod. `hangs`: agents are to find it, once no step came for long. `loses_node`: nobody hears of it again.
    `new_pod`: one pod is to be made anew. `goes_on`: the others need not wait for it. `spec`: more of the job's.
    """

    words: str
    do: Callable[[Jobs, str, str], None]
    cordons: bool = False
    recovery: dict[str, Any] = field(default_factory=dict)
    rank: int = 1
    hangs: bool = False
    loses_node: bool = False
    new_pod: bool = False
    goes_on: bool = False
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def in_place(self) -> bool:
        """Whether the pods stay."""
        return self.recovery.get("inPlace") == "Auto"


FROM_MEMORY: dict[str, Any] = {"inPlace": "Auto", "memory": {"everySteps": 1}}
ANEW: dict[str, Any] = {"recovery": FROM_MEMORY, "new_pod": True}

SLOW_PASSES = 6
SLOW: dict[str, Any] = {"spec": {"training": {"gradientAccumulation": SLOW_PASSES}}}
"""Steps of a second or more, as all are on GPUs: then each is in memory before the next is over."""

SPARE: dict[str, Any] = {**ANEW, "goes_on": True, "spec": {"spares": 1}}
PATIENCE_SECONDS = 10
SHRINKS: dict[str, Any] = {
    **ANEW,
    "goes_on": True,
    "spec": {
        "elastic": {"minNodes": 1, "patienceSeconds": PATIENCE_SECONDS},
        "training": {"effectiveBatch": 4},
    },
}


def _kill_pod(jobs: Jobs, pod: str, _node: str) -> None:
    jobs.cluster.fault("kill-container", f"default/{pod}")


def _delete(*options: str) -> Callable[[Jobs, str, str], None]:
    return lambda jobs, pod, _node: jobs.cluster.kubectl("delete", "pod", pod, "--wait=false", *options) and None


def _switch_off(jobs: Jobs, _pod: str, node: str) -> None:
    jobs.cluster.fault("kill", node)


def _gpu(**what: Any) -> Callable[[Jobs, str, str], None]:
    return lambda jobs, _pod, node: jobs.cluster.fault("gpu", node, gpu=1, **what)


FAULTS = {
    "rank": Fault("a rank is killed", lambda jobs, pod, _node: kill_rank(jobs.cluster, pod, 3)),
    "rank-in-place": Fault(
        "a rank is killed, and all start anew in their pods",
        lambda jobs, pod, _node: kill_rank(jobs.cluster, pod, 3),
        recovery={"inPlace": "Auto"},
    ),
    "rank-from-memory": Fault(
        "a rank is killed, and all start anew in their pods, from memory",
        lambda jobs, pod, _node: kill_rank(jobs.cluster, pod, 3),
        recovery=FROM_MEMORY,
    ),
    "hang": Fault(
        "a rank is stopped, and found hanging",
        lambda jobs, pod, _node: jobs.signal_rank(pod, 3, "STOP"),
        recovery={"hangSeconds": HANG_SECONDS},
        hangs=True,
    ),
    "hang-in-place": Fault(
        "a rank is stopped, found hanging, and all start anew in their pods, from memory",
        lambda jobs, pod, _node: jobs.signal_rank(pod, 3, "STOP"),
        recovery={**FROM_MEMORY, "hangSeconds": HANG_SECONDS},
        hangs=True,
    ),
    "xid-79": Fault("a GPU falls off the bus (XID 79)", _gpu(xid=79), cordons=True),
    "xid-94": Fault("a contained memory error (XID 94)", _gpu(xid=94)),
    "action": Fault("the driver asks for a reset, without an XID", _gpu(recovery_action=1), cordons=True),
    "lost": Fault("a GPU is lost, and no event tells", _gpu(lost=True), cordons=True),
    "pod": Fault("a pod is deleted by force", _delete("--force", "--grace-period=0")),
    "pod-forced-in-place": Fault(
        "a pod is deleted by force, from memory", _delete("--force", "--grace-period=0"), **ANEW
    ),
    "pod-deleted": Fault("a pod is deleted", _delete()),
    "pod-deleted-in-place": Fault("a pod is deleted, from memory", _delete(), **ANEW),
    "leader-forced-in-place": Fault(
        "rank 0's pod is deleted by force, from memory", _delete("--force", "--grace-period=0"), rank=0, **ANEW
    ),
    "pod-deleted-spare": Fault("a pod is deleted, and a spare takes its place", _delete(), **SPARE),
    "leader-deleted-in-place": Fault("rank 0's pod is deleted, from memory", _delete(), rank=0, **ANEW),
    "pod-killed": Fault("a pod is killed", _kill_pod),
    "pod-killed-in-place": Fault("a pod is killed and made anew, from memory", _kill_pod, **ANEW),
    "pod-killed-slow-steps": Fault("a pod is killed and made anew; steps of a second", _kill_pod, **SLOW, **ANEW),
    "leader-killed": Fault("rank 0's pod is killed", _kill_pod, rank=0),
    "leader-killed-in-place": Fault("rank 0's pod is killed and made anew, from memory", _kill_pod, rank=0, **ANEW),
    "node-lost": Fault("a node is switched off", _switch_off, loses_node=True),
    "node-lost-in-place": Fault(
        "a node is switched off, and its pod made anew, from memory", _switch_off, loses_node=True, **ANEW
    ),
    "node-lost-slow-steps": Fault(
        "a node is switched off, and its pod made anew; steps of a second",
        _switch_off,
        loses_node=True,
        **SLOW,
        **ANEW,
    ),
    "pod-killed-spare": Fault("a pod is killed, and a spare takes its place", _kill_pod, **SPARE),
    "node-lost-spare": Fault(
        "a node is switched off, and a spare takes its pod's place", _switch_off, loses_node=True, **SPARE
    ),
    "node-lost-spare-slow-steps": Fault(
        "a node is switched off, and a spare takes its pod's place; steps of a second",
        _switch_off,
        loses_node=True,
        **{**SPARE, "spec": {**SPARE["spec"], **SLOW["spec"]}},
    ),
    "node-lost-shrinks": Fault(
        f"a node is switched off, and after {PATIENCE_SECONDS} s the gang goes on without it",
        _switch_off,
        loses_node=True,
        **SHRINKS,
    ),
    "node-lost-shrinks-slow-steps": Fault(
        f"a node is switched off, and after {PATIENCE_SECONDS} s the gang goes on without it; steps of a second",
        _switch_off,
        loses_node=True,
        **{**SHRINKS, "spec": {**SHRINKS["spec"], "training": {"effectiveBatch": 4 * SLOW_PASSES}}},
    ),
    "xid-79-in-place": Fault(
        "a GPU falls off the bus (XID 79), and its pod is made anew, from memory", _gpu(xid=79), cordons=True, **ANEW
    ),
    "xid-79-slow-steps": Fault(
        "a GPU falls off the bus (XID 79), and its pod is made anew; steps of a second",
        _gpu(xid=79),
        cordons=True,
        **SLOW,
        **ANEW,
    ),
    "leader-xid-79-in-place": Fault(
        "a GPU of rank 0's pod falls off the bus (XID 79), and its pod is made anew, from memory",
        _gpu(xid=79),
        cordons=True,
        rank=0,
        **ANEW,
    ),
    "eviction": Fault("a pod is evicted: it saves first", lambda jobs, pod, _node: jobs.evict(pod)),
}
