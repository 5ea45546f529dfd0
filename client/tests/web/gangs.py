"""Facts of gangs that have lived through something: one of four nodes to look at, and one as large as any."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from situations import UID, condition, facts, output, pod

from oarlock.facts import Facts
from oarlock_api.contract.history import StoryLine

BEGAN = datetime(2026, 11, 23, 4, 0, tzinfo=UTC)
XID = "XID 79: GPU 5 has fallen off the bus"


def time(minutes: float) -> str:
    """So many minutes after the job was applied."""
    return (BEGAN + timedelta(minutes=minutes)).isoformat(timespec="seconds").replace("+00:00", "Z")


def said(kind: str, minutes: float, *, attempt: int = 1, **more: Any) -> dict[str, Any]:
    """A line of the history."""
    return json.loads(StoryLine(time=time(minutes), type=kind, attempt=attempt, job=UID, **more).to_json())  # type: ignore[no-any-return]


def attempt(number: int, begin: float, end: float | None, **more: Any) -> dict[str, Any]:
    """One of status.attempts."""
    stages = {"drain": 9_000, "queue": 4_000, "schedule": 2_500, "start": 41_000, "firstStep": 38_000}
    first = {name: took for name, took in stages.items() if number > 1 or name != "drain"}
    ended = {"endTime": time(end)} if end is not None else {}
    return {"number": number, "startTime": time(begin), "stageMilliseconds": first, **ended, **more}


def gang(phase: str = "Running", nodes: int = 4) -> Facts:
    """A gang that hung, lost a GPU and with it a node, and trains on in its third attempt."""
    names = [f"gpu-node-{place:02d}" for place in range(1, nodes + 2)]
    first, then = names[:nodes], [name for name in names if name != names[2]]
    gpu = {"index": 5, "uuid": "GPU-5f7a1c90-2b", "serial": "1650"}
    status: dict[str, Any] = {
        "phase": phase,
        "attempt": 3,
        "conditions": [condition("Accepted", "True", "Accepted"), condition("Degraded", "False", "AsExpected")],
        "attempts": [
            attempt(1, 0, 95, endReason="Hang", nodeNames=first[:32]),
            attempt(2, 96, 215, reason="Hang", endReason="GPUFault", nodeNames=first[:32], resumedFromStep=400, lostSteps=16),
            attempt(
                3, 216, None, reason="GPUFault", nodeNames=then[:32], removedNodeNames=[names[2]], resumedFromStep=1000,
                lostSteps=7,
            ),
        ],
        "progress": {"step": 1790, "totalSteps": 4000, "loss": 0.1873, "secondsPerStep": 11.9, "etaSeconds": 26300},
        "gpuSeconds": 32 * 60 * 420,
        "wastedGPUSeconds": 32 * 60 * 13,
        "lastFault": {
            "time": time(214.2), "class": "GPU", "nodeName": names[2], "rank": 2, "gpu": gpu, "xid": 79,
            "verdict": "ReplaceNode", "action": f"attempt 3 without {names[2]}", "evidence": [XID], "victims": nodes - 1,
        },
        "strikes": [
            {
                "gpuUUID": gpu["uuid"], "nodeName": names[2], "xid": 79, "count": 2, "hardwareCount": 2, "rank": 2,
                "lastTime": time(214.2),
            },
            {"gpuUUID": "GPU-0c44", "nodeName": names[0], "xid": 94, "count": 1, "lastTime": time(94.0), "rank": 0},
        ],
        "cordonedNodes": [
            {
                "name": names[2], "reason": f"GPU fault: {XID}", "attempt": 2, "gpu": gpu, "time": time(214.5),
                "doneTime": time(214.6),
            },
        ],
        "avoidedNodes": [{"name": names[2], "reason": "GPU fault", "sinceTime": time(214.5)}],
    }  # fmt: skip
    spec = {
        "nodes": nodes,
        "gpusPerNode": 8,
        "model": {"name": "black-forest-labs/FLUX.1-dev", "revision": "main"},
        "training": {"optimizer": {"name": "adamw", "learningRate": 1e-4}, "steps": 4000},
        "pod": {"env": [{"name": "HF_TOKEN", "value": "hf_secret"}, {"name": "NCCL_DEBUG", "value": "WARN"}]},
    }
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "flux-lora", "namespace": "team", "uid": UID, "creationTimestamp": time(0)},
        "spec": spec,
        "status": status,
    }
    hang = "no step for 60.4 s (60 s allowed): ranks 0-15 at step 416, in all_reduce, rank 17 in take (data/batches.py:147)"
    lines = [
        said("GangComplete", 1, data={"nodes": {str(rank): name for rank, name in enumerate(first)}}),
        said(
            "Fault", 94, rank=1, node=first[1], reason="Hang", message=hang, data={"code": 83, "detectedAt": time(94)}
        ),
        *(_lost(1, rank, first, 94.1) for rank in range(nodes) if rank != 1),
        said("GangComplete", 97, attempt=2, data={"nodes": {str(rank): name for rank, name in enumerate(first)}}),
        *(_lost(2, rank, first, 214.3) for rank in range(nodes) if rank != 2),
        said("GangComplete", 217, attempt=3, data={"nodes": {str(rank): name for rank, name in enumerate(then)}}),
    ]
    events = [
        _event("Training", "attempt 3 trains on 4 nodes", 218),
        _event("NodeCordoned", f"node {names[2]}: GPU fault. {XID}", 214.6, kind="Warning"),
        _event("Degraded", "rank 3 reads slower than the others", 300, kind="Warning"),
    ]
    found = facts(job, events=events, output=output(*lines, metrics=tuple(_curve())), nodes=[])
    return Facts(**{**{name: getattr(found, name) for name in Facts.__slots__}, "time": time(421), "name": "flux-lora"})


def _lost(attempt: int, rank: int, names: list[str], minutes: float) -> dict[str, Any]:
    data = {"code": 82, "detectedAt": time(minutes)}
    words = "connection closed by peer [10.244.1.7]:29500"
    return said(
        "Fault", minutes, attempt=attempt, rank=rank, node=names[rank], reason="PeerLost", message=words, data=data
    )


def _event(reason: str, message: str, minutes: float, kind: str = "Normal") -> dict[str, Any]:
    about = {"kind": "TrainingJob", "name": "flux-lora", "namespace": "team"}
    return {"involvedObject": about, "reason": reason, "message": message, "type": kind, "lastTimestamp": time(minutes)}


def _curve() -> list[dict[str, Any]]:
    spans = ((1, range(1, 417, 3), 2.0), (2, range(401, 1008, 3), 97.5), (3, range(1001, 1791, 3), 218.0))
    return [
        {
            "step": step,
            "attempt": number,
            "loss": 0.18 + 0.5 * math.exp(-step / 300) + 0.02 * math.sin(step * 1.7) * math.cos(step / 5),
            "secondsPerStep": 12 + 0.6 * math.sin(step / 9) + (30 if step == steps[0] else 0),
            "total": 4000,
            "time": time(begin + (step - steps[0]) * 0.19),
        }
        for number, steps, begin in spans
        for step in steps
    ]


def large(ranks: int = 1000, attempts: int = 20) -> Facts:
    """As large as any: pods of 1,000 nodes, of which all lost a peer in each of 19 attempts, with a cordon each."""
    names = [f"dgx-a-{rank:04d}.cluster.local" for rank in range(ranks)]
    lines: list[dict[str, Any]] = []
    for number in range(1, attempts + 1):
        begin, culprit = 60.0 * number, (number * 37) % ranks
        places = {str(rank): name for rank, name in enumerate(names)}
        lines.append(said("AttemptStarted", begin, attempt=number, data={"nodes": ranks, "gpusPerNode": 8}))
        lines.append(said("GangComplete", begin + 1, attempt=number, data={"nodes": places}))
        lines.append(said("Stage", begin + 3, attempt=number, rank=0, data={"name": "FirstStep", "seconds": 120.0}))
        if number == attempts:
            break
        data = {
            "code": 80,
            "detectedAt": time(begin + 55),
            "gpu": {"index": number % 8, "uuid": f"GPU-{number}"},
            "xid": 79,
        }
        lines.append(
            said(
                "Fault",
                begin + 55,
                attempt=number,
                rank=culprit,
                node=names[culprit],
                reason="GPU",
                message=XID,
                data=data,
            )
        )
        lines += [_lost(number, rank, names, begin + 55.1) for rank in range(ranks) if rank != culprit]
        lines.append(
            said("Decision", begin + 57, attempt=number, reason="GPUFault", message=f"attempt {number + 1} starts")
        )
        lines.append(said("Ended", begin + 58, attempt=number, reason="GPUFault"))
    known = gang(nodes=ranks)
    assert known.job is not None
    status = {key: value for key, value in known.job["status"].items() if key not in ("lastFault", "strikes")}
    status["attempt"] = attempts
    status["attempts"] = [
        attempt(
            number, 60.0 * number, 60.0 * number + 58 if number < attempts else None, nodeNames=names[:32],
            endReason="GPUFault" if number < attempts else None,
        )
        for number in range(attempts - 9, attempts + 1)
    ]  # fmt: skip
    status["cordonedNodes"] = [
        {
            "name": names[(number * 37) % ranks], "reason": XID, "attempt": number, "time": time(60.0 * number + 56),
            "doneTime": time(60.0 * number + 56),
        }
        for number in range(1, attempts)
    ]  # fmt: skip
    status["avoidedNodes"] = [{"name": one["name"], "reason": "GPU fault"} for one in status["cordonedNodes"]]
    job = {**known.job, "status": status}
    pods = [pod(rank, node=name, attempt=attempts, phase="Running") for rank, name in enumerate(names)]
    found = facts(job, pods=pods, events=known.events, output=output(*lines, metrics=tuple(_curve())))
    fields = {name: getattr(found, name) for name in Facts.__slots__}
    return Facts(**{**fields, "time": time(60.0 * attempts + 40), "name": "flux-lora"})
