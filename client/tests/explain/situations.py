"""Jobs in trouble that no local cluster can be brought into, built by hand with the words of the real components."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oarlock.facts import Facts, Output
from oarlock_api.contract.history import StoryLine
from oarlock_api.contract.report import Evidence, Gpu, Report

NOW = "2026-11-23T11:00:00Z"
UID = "0b54b2d0-0000-4000-8000-000000000000"
JOB = "flux"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def job(phase: str = "Starting", *conditions: Mapping[str, Any], attempt: int = 1, **status: Any) -> dict[str, Any]:
    """A TrainingJob with this status."""
    told = {
        "phase": phase,
        "attempt": attempt,
        "conditions": list(conditions) or [condition("Accepted", "True", "Accepted")],
    }
    attempts = [{"number": number, "startTime": f"2026-11-23T10:0{number}:00Z"} for number in range(1, attempt + 1)]
    metadata = {"name": JOB, "namespace": "team", "uid": UID, "creationTimestamp": "2026-11-23T10:00:00Z"}
    return {"metadata": metadata, "spec": {"nodes": 2}, "status": {**told, "attempts": attempts, **status}}


def pod(rank: int = 0, *, node: str | None = None, attempt: int = 1, **status: Any) -> dict[str, Any]:
    """A pod of the gang; without a node it waits for one."""
    labels = {"oarlock.dev/job": JOB, "oarlock.dev/attempt": str(attempt), "oarlock.dev/rank": str(rank)}
    metadata = {
        "name": f"{JOB}-{attempt}-{rank}",
        "uid": f"pod-{attempt}-{rank}",
        "labels": labels,
        "creationTimestamp": NOW,
    }
    spec = {"nodeName": node, "containers": [{"name": "trainer", "image": "registry.example.com/trainer:1"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **status}}


def unplaced(said: str, rank: int = 0) -> dict[str, Any]:
    return pod(rank, conditions=[condition("PodScheduled", "False", "Unschedulable", said)])


def waiting(reason: str, message: str, *, node: str = "node-2", rank: int = 1) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(rank, node=node, containerStatuses=[{"name": "trainer", "state": state}])


def ended(report: Report, *, node: str, **terminated: Any) -> dict[str, Any]:
    """A pod whose agent left this report."""
    own = Report(**{**{name: getattr(report, name) for name in Report.__slots__}, "pod_uid": f"pod-1-{report.rank}"})
    state = {"exitCode": report.code, "message": own.to_json(), "finishedAt": NOW, **terminated}
    status = [{"name": "trainer", "state": {"terminated": state}}]
    return pod(report.rank, node=node, phase="Failed", containerStatuses=status)


def report(
    code: int, summary: str, *, rank: int = 1, attempt: int = 1, at: str = "2026-11-23T10:30:00Z", **more: Any
) -> Report:
    return Report(
        attempt=attempt, rank=rank, pod_uid="", failure_class="", code=code, detected_at=at, summary=summary, **more
    )


def event(reason: str, message: str, *, kind: str = "TrainingJob", name: str = JOB, time: str = NOW) -> dict[str, Any]:
    about = {"kind": kind, "name": name}
    return {"involvedObject": about, "reason": reason, "message": message, "type": "Warning", "lastTimestamp": time}


def node(name: str, *taints: Mapping[str, str], cordoned: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints), **({"unschedulable": True} if cordoned else {})},
    }


def facts(job: Mapping[str, Any] | None, **more: Any) -> Facts:
    return Facts(
        namespace="team", name=JOB, time=NOW, job=job, **{k: tuple(v) if k != "output" else v for k, v in more.items()}
    )


def line(kind: str, *, attempt: int = 1, time: str = "10:00:00", **more: Any) -> dict[str, Any]:
    """A line of the history, as it is read."""
    told = StoryLine(time=f"2026-11-23T{time}Z", type=kind, attempt=attempt, job=UID, **more)
    return json.loads(told.to_json())  # type: ignore[no-any-return]


def output(*lines: Mapping[str, Any], reports: Sequence[Report] = (), **more: Any) -> Output:
    told = tuple(json.loads(one.to_json()) for one in reports)
    return Output(
        folder="/mnt/nfs/flux", owner={"jobUid": UID, "attempt": 1}, history=tuple(lines), reports=told, **more
    )


def gpu(index: int = 3) -> Gpu:
    return Gpu(index=index, uuid="GPU-5f7a", serial="1650", pci_bus_id="0000:1b:00.0", name="H100")


def reading(probe: str, value: str) -> Evidence:
    return Evidence(probe=probe, value=value, at="2026-11-23T10:30:00Z")


PREEMPTION = " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
KUEUE = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
WORKLOAD = {"status": {"conditions": [condition("QuotaReserved", "False", "Pending", KUEUE)]}}
CLOCK = (
    "clock: node node-2 is 4.2 s ahead of the file server (nfs4 10.0.0.5:/export at /output) and 4.1 s away from 3 other "
    "nodes, at most 1 s are allowed. Nodes and server need one time: run chrony or another NTP client on each."
)
HUNG = (
    "no step for 60.4 s (60 s are allowed): ranks 0-2 at step 7, in all_reduce (distributed/distributed_c10d.py:2806); "
    "rank 3 at step 7, stopped by a signal, in take (data/batches.py:147)"
)
LOST_PEER = "rank 0: [c10d] connection closed by peer [10.244.1.7]:29500"
FULL = "rank 8: writing the checkpoint: [Errno 28] No space left on device: '/output/flux/checkpoints/step-400-a1'"
DATA = (
    'rank 0: dataset "photos": source.path: /data/photos is not there: mount its volume with pod.volumes, or correct it'
)
SLOW = (
    "rank 9, in pod flux-3-1 on node-2, takes 31% longer for its forward passes than the median of the others, over 50 steps "
    "in which it did not wait for data: all wait for it. CPU share: for 45% of the time it was ready to run and had none"
)
NETWORK = (
    "rank 0: node node-2 cannot reach rank 0 at flux-0.flux.team.svc:29500, and nodes node-1, node-3 can: it is cut off"
)
MIXED = (
    "0/4 nodes are available: 1 node(s) had untolerated taint(s) {node-role.kubernetes.io/control-plane: }, "
    "1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu."
)


def last_fault(kind: str, said: str, **more: Any) -> dict[str, Any]:
    return {"time": "2026-11-23T10:30:00Z", "class": kind, "evidence": [said], **more}


RUNS = condition("Degraded", "False", "AsExpected")
SITUATIONS: dict[str, tuple[Facts, str, str]] = {
    "a queue without quota": (
        facts(
            job(
                "Queued", condition("Scheduled", "False", "Queued", "in the queue team-a"), recovery={"stage": "Queue"}
            ),
            pods=[pod(0), pod(1)],
            groups=[WORKLOAD],
        ),
        "Queued",
        "",
    ),
    "a taint on all nodes": (
        facts(
            job(),
            pods=[unplaced(f"0/4 nodes are available: 4 node(s) had untolerated taint(s) {{spot: true}}.{PREEMPTION}")],
        ),
        "TaintNotTolerated",
        "",
    ),
    "a taint on the one node that is asked for": (
        facts(
            job(),
            pods=[
                unplaced(
                    "0/4 nodes are available: 1 node(s) had untolerated taint {spot: true}, 3 node(s) didn't match Pod's "
                    f"node affinity/selector.{PREEMPTION}"
                )
            ],
            nodes=[node("node-1"), node("node-2", SPOT), node("node-3"), node("node-4")],
        ),
        "TaintNotTolerated",
        "node-2",
    ),
    "too few GPUs beside other reasons": (
        facts(
            job(),
            pods=[pod(0, node="node-1"), unplaced(f"{MIXED}{PREEMPTION}", 1)],
            nodes=[node("node-3", cordoned=True)],
        ),
        "NotEnoughGPUs",
        "",
    ),
    "a volume of another zone": (
        facts(
            job(), pods=[unplaced(f"0/4 nodes are available: 4 node(s) had volume node affinity conflict.{PREEMPTION}")]
        ),
        "VolumeElsewhere",
        "",
    ),
    "all nodes cordoned": (
        facts(
            job(),
            pods=[unplaced(f"0/1 nodes are available: 1 node(s) were unschedulable.{PREEMPTION}")],
            nodes=[node("node-1", cordoned=True)],
        ),
        "NodesCordoned",
        "node-1",
    ),
    "nodes that are avoided": (
        facts(
            job(
                "Recovering",
                condition(
                    "Scheduled", "False", "NotEnoughHealthyNodes", "avoided: node-2 (GPUFault in attempt 1). Repair it"
                ),
                attempt=2,
                avoidedNodes=[{"name": "node-2"}],
            ),
            pods=[
                {
                    **unplaced(
                        f"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.{PREEMPTION}"
                    ),
                    "metadata": pod(0, attempt=2)["metadata"],
                }
            ],
            nodes=[node("node-1"), node("node-2"), node("node-3")],
        ),
        "NotEnoughHealthyNodes",
        "node-2",
    ),
    "an image that is not there": (
        facts(
            job(),
            pods=[waiting("ImagePullBackOff", 'Back-off pulling image "registry.example.com/trainer:1"')],
            events=[
                event(
                    "Failed",
                    'Failed to pull image "registry.example.com/trainer:1": rpc error: code = NotFound desc = '
                    "failed to pull and "
                    "unpack image: failed to resolve reference: registry.example.com/trainer:1: not found",
                    kind="Pod",
                    name="flux-1-1",
                )
            ],
        ),
        "ImageNotFound",
        "node-2",
    ),
    "an image without its secret": (
        facts(
            job(),
            pods=[
                waiting(
                    "ErrImagePull",
                    "failed to pull and unpack image: failed to authorize: failed to fetch anonymous token: "
                    "unexpected status "
                    "from GET request to https://auth.example.com/token: 401 Unauthorized",
                )
            ],
        ),
        "ImagePullDenied",
        "node-2",
    ),
    "a mount that fails": (
        facts(
            job(
                "Starting",
                condition(
                    "StorageReady",
                    "False",
                    "VolumeNotReady",
                    'flux-1-1 on node-2: FailedMount: MountVolume.SetUp failed for volume "output" : mount '
                    "failed: exit status "
                    "32 mount.nfs: access denied by server while mounting 10.0.0.5:/export. The server does not export it",
                ),
            ),
            pods=[pod(0, node="node-1"), pod(1, node="node-2")],
        ),
        "MountFailed",
        "node-2",
    ),
    "clocks apart": (
        facts(
            job("Recovering", RUNS, attempt=1),
            pods=[ended(report(87, CLOCK), node="node-2"), ended(report(82, LOST_PEER, rank=0), node="node-1")],
        ),
        "ClocksApart",
        "node-2",
    ),
    "a node that is cut off": (
        facts(job("Recovering", RUNS), pods=[ended(report(87, NETWORK), node="node-2")]),
        "NodeCutOff",
        "node-2",
    ),
    "GPUs too few": (
        facts(
            job("Recovering", RUNS),
            pods=[ended(report(87, "GPUs: 7 of 8 are there on node node-2 (GPU-1): one has been lost"), node="node-2")],
        ),
        "GPUsUnfit",
        "node-2",
    ),
    "the victim speaks first": (
        facts(
            job("Recovering", RUNS),
            pods=[
                ended(report(82, LOST_PEER, rank=0, at="2026-11-23T10:29:59Z"), node="node-1"),
                ended(
                    report(
                        80,
                        "GPU 3 (GPU-5f7a): XID 79: fallen off the bus",
                        gpu=gpu(),
                        xid=79,
                        evidence=(reading("xid", "79"),),
                    ),
                    node="node-2",
                ),
            ],
        ),
        "GPUFault",
        "node-2",
    ),
    "a hang with a culprit": (
        facts(job("Recovering", RUNS), pods=[ended(report(83, HUNG, first_error_rank=3), node="node-2")]),
        "Hang",
        "node-2",
    ),
    "storage full while it saves": (
        facts(job("Recovering", RUNS), pods=[ended(report(84, FULL), node="node-2")]),
        "StorageFull",
        "node-2",
    ),
    "checkpoints find no room": (
        facts(
            job(
                "Running",
                condition("Degraded", "True", "CheckpointStorageFull", "no room for step 400: 143 GB are needed"),
            ),
            pods=[pod(0, node="node-1")],
        ),
        "CheckpointStorageFull",
        "",
    ),
    "data unusable": (
        facts(
            job(
                "Failed",
                reason="ConfigurationError",
                message=f"pod flux-1-0 on node-1: {DATA}",
                completionTime=NOW,
                lastFault=last_fault("Configuration", f"pod flux-1-0 on node-1: {DATA}", nodeName="node-1", rank=0),
            ),
        ),
        "DataUnusable",
        "node-1",
    ),
    "a slow rank": (
        facts(
            job("Running", condition("Degraded", "True", "SlowRank", SLOW)),
            pods=[pod(0, node="node-1"), pod(1, node="node-2")],
        ),
        "SlowRank",
        "node-2",
    ),
    "a GPU's memory too small": (
        facts(
            job("Recovering", RUNS),
            pods=[ended(report(1, "rank 8: torch.OutOfMemoryError: CUDA out of memory. Tried"), node="node-2")],
        ),
        "GPUOutOfMemory",
        "node-2",
    ),
    "killed for its memory": (
        facts(
            job("Recovering", RUNS),
            pods=[
                pod(
                    1,
                    node="node-2",
                    phase="Failed",
                    containerStatuses=[
                        {
                            "name": "trainer",
                            "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": NOW}},
                        }
                    ],
                )
            ],
        ),
        "OOMKilled",
        "node-2",
    ),
    "preempted": (
        facts(
            job("Recovering", RUNS),
            pods=[
                {
                    **pod(
                        1, node="node-2", conditions=[condition("DisruptionTarget", "True", "PreemptionByScheduler")]
                    ),
                    "metadata": {**pod(1)["metadata"], "deletionTimestamp": NOW},
                }
            ],
        ),
        "Preempted",
        "node-2",
    ),
    "evicted for the node's disk": (
        facts(
            job("Recovering", RUNS),
            pods=[
                pod(
                    1,
                    node="node-2",
                    phase="Failed",
                    reason="Evicted",
                    message="The node was low on resource: ephemeral-storage.",
                    conditions=[condition("DisruptionTarget", "True", "TerminationByKubelet")],
                )
            ],
        ),
        "Evicted",
        "node-2",
    ),
    "refused for its node's disk": (
        facts(
            job("Recovering", RUNS),
            pods=[
                pod(
                    1,
                    node="node-2",
                    phase="Failed",
                    reason="Evicted",
                    message="Pod was rejected: The node had condition: [DiskPressure]. ",
                )
            ],
        ),
        "RefusedByNode",
        "node-2",
    ),
    "refused for its node's topology": (
        facts(
            job("Recovering", RUNS),
            pods=[
                pod(
                    1,
                    node="node-2",
                    phase="Failed",
                    reason="TopologyAffinityError",
                    message="Pod was rejected: Resources cannot be allocated with Topology locality",
                )
            ],
        ),
        "RefusedByNode",
        "node-2",
    ),
    "a limit of its own": (
        facts(
            job("Recovering", RUNS),
            pods=[
                pod(
                    1,
                    node="node-2",
                    phase="Failed",
                    reason="Evicted",
                    message="Usage of EmptyDir volume exceeds the limit",
                )
            ],
        ),
        "LimitExceeded",
        "node-2",
    ),
    "a node lost": (
        facts(
            job(
                "Recovering",
                RUNS,
                attempt=2,
                attempts=[
                    {
                        "number": 1,
                        "startTime": "2026-11-23T10:01:00Z",
                        "endReason": "NodeLost",
                        "nodeNames": ["node-1", "node-2"],
                    },
                    {
                        "number": 2,
                        "startTime": "2026-11-23T10:31:00Z",
                        "reason": "NodeLost",
                        "nodeNames": ["node-1", "node-3"],
                    },
                ],
                lastFault=last_fault("NodeLost", "node node-2 of pod flux-1-1 is lost", nodeName="node-2", rank=1),
            ),
        ),
        "NodeLost",
        "node-2",
    ),
    "budget used up by a program": (
        facts(
            job(
                "Failed",
                reason="ApplicationRestartsExhausted",
                message="recovery.maxApplicationRestarts (3) is used up. The last fault: pod flux-4-1 on node-2: "
                "rank 8: KeyError",
                completionTime=NOW,
                attempt=4,
                attempts=[
                    {"number": 4, "startTime": "2026-11-23T10:01:00Z", "endReason": "ApplicationRestartsExhausted"}
                ],
                lastFault=last_fault(
                    "Application", "pod flux-4-1 on node-2: rank 8: KeyError: 'mask'", nodeName="node-2", rank=1
                ),
            ),
        ),
        "ApplicationError",
        "node-2",
    ),
    "an image that never came in time": (
        facts(
            job(
                "Failed",
                reason="StartupDeadlineExceeded",
                message="flux-1-1 did not start within startupDeadlineSeconds (1800): ImagePullBackOff: Back-off "
                "pulling image "
                '"registry.example.com/trainer:1": not found',
                completionTime=NOW,
            ),
        ),
        "ImageNotFound",
        "",
    ),
    "gone, after a GPU fault": (
        facts(
            None,
            output=output(
                line("AttemptStarted", rank=0, node="node-1", data={"image": "registry.example.com/trainer:1"}),
                line(
                    "GangComplete",
                    time="10:00:05",
                    rank=0,
                    node="node-1",
                    data={"nodes": {"0": "node-1", "1": "node-2"}},
                ),
                line("Checkpoint", time="10:20:00", rank=0, node="node-1", data={"step": 400}),
                reports=[report(80, "GPU 3 (GPU-5f7a): XID 79", gpu=gpu(), xid=79), report(82, LOST_PEER, rank=0)],
                checkpoints=({"step": 400, "attempt": 1, "committed": True},),
            ),
        ),
        "GPUFault",
        "node-2",
    ),
}
"""Name -> facts, the cause, and the node that it has to be told with."""
