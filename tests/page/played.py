"""Jobs that are played: TrainingJobs with the status, nodes and pods that an operator and kubelets would have left, on a real
API server without either. So a page shows what takes hours, in a second, and nothing of it changes by itself.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from oarlock_api.contract.names import Label
from oarlock_api.contract.node_marks import CORDONED
from oarlock_local import patience
from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster
from oarlock_local.crd import apply_crd

ROOT = Path(__file__).parents[2]
KIND = "/apis/oarlock.dev/v1alpha1/namespaces/{}/trainingjobs"
XID = "XID 79: GPU 5 has fallen off the bus"
Json = dict[str, Any]


def ago(minutes: float) -> str:
    """The time so many minutes before now."""
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="seconds").replace("+00:00", "Z")


class Played:
    """What is played on one control plane."""

    def __init__(self, cluster: Cluster, api: ApiServer) -> None:
        self.cluster, self.api = cluster, api
        apply_crd(cluster, ROOT / "crds/trainingjobs.yaml")
        job = yaml.safe_load((ROOT / "examples/trainingjob.yaml").read_text())
        job["spec"]["training"]["optimizer"]["learningRate"] = 0.001  # YAML 1.1 reads 1.0e-3 as a string
        self._example: Json = job

    def namespace(self, name: str) -> None:
        """A namespace in which pods can be made."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        self.cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, patience.KUBECTL)

    def job(self, namespace: str, name: str, *, nodes: int = 4, gpus: int = 8, **status: Any) -> None:
        """A job with this status."""
        metadata = {"name": name, "namespace": namespace}
        spec = {**self._example["spec"], "nodes": nodes, "gpusPerNode": gpus}
        self.api.create(KIND.format(namespace), {**self._example, "metadata": metadata, "spec": spec})
        self.tell(namespace, name, **status)

    def tell(self, namespace: str, name: str, **status: Any) -> None:
        """Change fields of a job's status, as the operator would."""
        self.api.merge(f"{KIND.format(namespace)}/{name}/status", {"status": status})

    def event(self, namespace: str, name: str, reason: str, message: str, kind: str = "Normal") -> None:
        """An Event of the operator's about a job."""
        job = self.api.get(f"{KIND.format(namespace)}/{name}")
        about = {key: job["metadata"][key] for key in ("name", "namespace", "uid")}
        event = {
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
            "involvedObject": {"apiVersion": job["apiVersion"], "kind": job["kind"], **about},
            "type": kind,
            "reason": reason,
            "message": message,
            "firstTimestamp": ago(0),
            "lastTimestamp": ago(0),
            "count": 1,
        }
        self.api.create(f"/api/v1/namespaces/{namespace}/events", event)

    def nodes(self, *names: str, cordoned: tuple[str, ...] = ()) -> None:
        """Nodes with eight GPUs each; those that are cordoned are so for a GPU fault of the job flux-lora."""
        ready = {"type": "Ready", "status": "True", "reason": "Played", **_TIMES}
        status = {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "capacity": {"nvidia.com/gpu": "8"}}
        told = {"job": "team-a/flux-lora", "reason": f"GPU fault: {XID}", "time": ago(200)}
        for name in names:
            metadata: Json = {"name": name}
            if name in cordoned:
                metadata["annotations"] = {CORDONED: json.dumps(told)}
            node = {"metadata": metadata, "spec": {"unschedulable": name in cordoned}}
            self.api.create("/api/v1/nodes", node)
            self.api.merge(f"/api/v1/nodes/{name}/status", {"status": {**status, "conditions": [ready]}})

    def pods(self, namespace: str, job: str, attempt: int, nodes: list[str]) -> None:
        """The gang of an attempt, running on these nodes."""
        uid = self.api.get(f"{KIND.format(namespace)}/{job}")["metadata"]["uid"]
        for rank, node in enumerate(nodes):
            self.pod(namespace, job, uid=uid, attempt=attempt, rank=rank, node=node)

    def pod(self, namespace: str, job: str, *, uid: str, attempt: int, rank: int, node: str) -> None:
        """One pod of a gang, running."""
        path, name = f"/api/v1/namespaces/{namespace}/pods", f"{job}-{attempt}-{rank}"
        labels = {Label.JOB: job, Label.JOB_UID: uid, Label.ATTEMPT: str(attempt), Label.RANK: str(rank)}
        container = {"name": "trainer", "image": "example.test/trainer:1"}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node, "containers": [container]}}
        self.api.create(path, body)
        running = {"name": "trainer", "ready": True, "state": {"running": {"startedAt": ago(200)}}, **_IMAGE}
        status = {"phase": "Running", "startTime": ago(200), "containerStatuses": [running]}
        self.api.merge(f"{path}/{name}/status", {"status": status})


_TIMES = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
_IMAGE = {"image": "example.test/trainer:1", "imageID": "", "restartCount": 0}
NAMES = [f"gpu-node-{number:02d}" for number in range(1, 6)]
FIRST, THEN = NAMES[:4], [name for name in NAMES if name != NAMES[2]]
"""A gang's nodes before and after it lost one."""


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    """A condition of a job."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(200)}


def curve(until: int = 1790, points: int = 60) -> list[Json]:
    """Losses that fall, as status.curve has them."""
    steps = [1 + round(place * (until - 1) / (points - 1)) for place in range(points)]
    return [
        {
            "step": step,
            "loss": 0.18 + 0.5 * math.exp(-step / 300) + 0.015 * math.sin(step * 1.7),
            "secondsPerStep": 12 + 0.6 * math.sin(step / 90),
        }
        for step in steps
    ]


def training() -> Json:
    """The status of a job that hung, lost a GPU and with it a node, and trains on in its third attempt."""
    stages = {"queue": 4_000, "schedule": 2_500, "start": 41_000, "firstStep": 38_000}
    gpu = {"index": 5, "uuid": "GPU-5f7a1c90-2b", "serial": "1650"}
    second = {"reason": "Hang", "resumedFromStep": 400, "lostSteps": 16}
    third = {"reason": "GPUFault", "resumedFromStep": 1000, "lostSteps": 7, "removedNodeNames": [NAMES[2]]}
    attempts = [
        {"number": 1, "startTime": ago(420), "endTime": ago(325), "endReason": "Hang", "nodeNames": FIRST},
        {
            "number": 2,
            "startTime": ago(324),
            "endTime": ago(205),
            "endReason": "GPUFault",
            "nodeNames": FIRST,
            **second,
        },
        {"number": 3, "startTime": ago(204), "nodeNames": THEN, **third},
    ]
    return {
        "phase": "Running",
        "attempt": 3,
        "restartCount": 2,
        "ranks": {"desired": 4, "created": 4, "ready": 4},
        "summary": {"nodes": "4/4", "step": "1790/4000", "eta": "7h18m", "lastFault": f"GPU fault on {NAMES[2]}"},
        "conditions": [condition("Accepted", "True", "Accepted"), condition("Degraded", "False", "AsExpected")],
        "attempts": [{**one, "nodeCount": 4, "stageMilliseconds": stages} for one in attempts],
        "progress": progress(1790),
        "curve": curve(),
        "latestCheckpoint": {"step": 1750, "path": "/output/flux-lora/checkpoints/step-1750-a3", "saveTime": ago(8)},
        "startTime": ago(420),
        "gpuSeconds": 32 * 60 * 420,
        "wastedGPUSeconds": 32 * 60 * 13,
        "lastFault": {
            "time": ago(206), "class": "GPU", "nodeName": NAMES[2], "rank": 2, "gpu": gpu, "xid": 79, "victims": 3,
            "verdict": "ReplaceNode", "action": f"attempt 3 without {NAMES[2]}", "evidence": [XID],
        },
        "strikes": [
            {
                "gpuUUID": gpu["uuid"], "nodeName": NAMES[2], "xid": 79, "count": 2, "hardwareCount": 2, "rank": 2,
                "lastTime": ago(206),
            },
        ],
        "cordonedNodes": [
            {
                "name": NAMES[2], "reason": f"GPU fault: {XID}", "attempt": 2, "gpu": gpu, "time": ago(205),
                "doneTime": ago(205),
            },
        ],
        "avoidedNodes": [{"name": NAMES[2], "reason": "GPU fault", "sinceTime": ago(205)}],
    }  # fmt: skip


def progress(step: int, total: int = 4000) -> Json:
    """status.progress of a job at this step."""
    loss = 0.18 + 0.5 * math.exp(-step / 300)
    return {
        "step": step, "totalSteps": total, "loss": round(loss, 4), "secondsPerStep": 11.9, "imagesPerSecond": 2.7,
        "learningRate": 1e-4, "etaSeconds": int((total - step) * 11.9), "updateTime": ago(0),
    }  # fmt: skip


def team(played: Played) -> None:
    """Jobs of two namespaces, one of each kind that a list shows, and the nodes below them."""
    for name in ("team-a", "team-b"):
        played.namespace(name)
    played.nodes(*NAMES, cordoned=(NAMES[2],))
    played.job("team-a", "flux-lora", **training())
    played.pods("team-a", "flux-lora", 3, THEN)
    played.event("team-a", "flux-lora", "NodeCordoned", f"node {NAMES[2]}: GPU fault. {XID}", "Warning")
    played.event("team-a", "flux-lora", "Training", "attempt 3 trains on 4 nodes")
    waits = "waits in the queue training: 24 GPUs of 32 are free"
    played.job("team-a", "portraits", phase="Queued", attempt=1, reason="WaitingInQueue", message=waits)
    done: Json = {
        "phase": "Succeeded",
        "attempt": 1,
        "progress": progress(4000),
        "curve": curve(4000),
        "startTime": ago(900),
    }
    played.job("team-a", "sketches", **done, completionTime=ago(60))
    wrong = "the data set photos has no picture that can be used: see spec.training.data"
    played.job(
        "team-a", "typo", phase="Failed", attempt=1, reason="Configuration", message=wrong, completionTime=ago(30)
    )
    one: Json = {"number": 1, "startTime": ago(300), "nodeCount": 4, "nodeNames": FIRST}
    held: Json = {
        "phase": "Suspended",
        "attempt": 1,
        "progress": progress(900),
        "curve": curve(900, 30),
        "attempts": [one],
    }
    played.job("team-a", "styles", **held)
    again: Json = {"phase": "Recovering", "attempt": 2, "progress": progress(120), "recovery": {"stage": "Schedule"}}
    played.job("team-b", "secret-project", **again, summary={"lastFault": "rank 3 was killed by SIGSEGV"})


def many(played: Played, count: int, namespace: str = "many") -> None:
    """So many jobs that run, each somewhere else."""
    played.namespace(namespace)
    for number in range(count):
        step = 100 + number * 37 % 3800
        status: Json = {
            "phase": "Running",
            "attempt": 1 + number % 4,
            "restartCount": number % 4,
            "curve": curve(step, 60),
        }
        ranks = {"desired": 4, "created": 4, "ready": 4}
        played.job(
            namespace, f"run-{number:04d}", **status, ranks=ranks, progress=progress(step), startTime=ago(number)
        )
