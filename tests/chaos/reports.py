"""Termination messages, true and forged, and the ledger of what was planted as true."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from oarlock_api.contract.report import Evidence, Gpu, Report

Json = dict[str, Any]


@dataclass(slots=True)
class Planted:
    """A broken GPU that a pod of a job with GPUs truly reported: it may cost its node one cordon."""

    job: str
    attempt: int
    node: str
    node_uid: str
    used: bool = False


@dataclass(slots=True)
class Ledger:
    """What was done that may be answered by a cordon, and what a person did to nodes. Written before it is done."""

    planted: list[Planted] = field(default_factory=list)
    cordoned_by_hand: set[str] = field(default_factory=set)
    """Uids of nodes that a person is about to cordon."""
    uncordoned_by_hand: set[str] = field(default_factory=set)
    """Uids of nodes that a person is about to uncordon."""

    def proof(self, *, job: str, attempt: int, node_uid: str) -> Planted | None:
        """What a cordon of that node for that attempt may rest on, used or not; the unused first."""
        found = [each for each in self.planted if (each.job, each.attempt, each.node_uid) == (job, attempt, node_uid)]
        return min(found, key=lambda each: each.used, default=None)


def report(pod: Json, code: int, **changes: Any) -> Report:
    """What the agent of `pod` would write; `changes` make it another's."""
    labels = pod["metadata"]["labels"]
    known: dict[str, Any] = {
        "attempt": int(labels["oarlock.dev/attempt"]),
        "rank": int(labels["oarlock.dev/rank"]),
        "pod_uid": pod["metadata"]["uid"],
        "failure_class": "",
        "code": code,
        "detected_at": datetime.now(UTC).isoformat(),
        "summary": f"planted, code {code}",
    }
    return Report(**{**known, **changes})


def of_gpu(pod: Json, code: int, *, xid: int, gpu: str, probe: str = "xid", **changes: Any) -> Report:
    """A GPU's fault in the driver's words, or by `probe` in somebody else's."""
    evidence = (Evidence(probe=probe, value=xid, at=datetime.now(UTC).isoformat()),)
    named = Gpu(index=0, uuid=gpu, serial=gpu[-6:])
    words = f"GPU 0 ({gpu}) XID {xid}"
    return report(
        pod, code, failure_class="GPU", gpu=named, xid=xid, evidence=evidence, **{"summary": words, **changes}
    )


def gpu_at(node: str) -> str:
    """The uuid of a node's first GPU, which it keeps."""
    return f"GPU-{node}-0"


def gpu_of(pod: Json) -> str:
    """That of the pod's node."""
    return gpu_at(pod["spec"].get("nodeName", "none"))


FORGERIES = ("another pod's", "another attempt's", "another rank's", "a program's claim", "broken", "deep")


def forged(pod: Json, kind: str, chance: random.Random) -> str:
    """A message that speaks against a GPU and must not be believed."""
    changes: dict[str, Any] = {}
    match kind:
        case "another pod's":
            changes = {"pod_uid": "00000000-0000-4000-8000-000000000000"}
        case "another attempt's":
            changes = {"attempt": int(pod["metadata"]["labels"]["oarlock.dev/attempt"]) + chance.choice((-1, 1, 7))}
        case "another rank's":
            changes = {"rank": 99}
        case "a program's claim":
            changes = {"probe": "webhook"}
    said = of_gpu(pod, 80, xid=79, gpu=gpu_of(pod), **changes).to_json()
    if kind == "deep":
        return '{"a":' * 700 + "1" + "}" * 700
    return said[:-9] if kind == "broken" else said
