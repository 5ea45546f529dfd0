"""Pods as the API server sends them, for tests of what is read from them."""

from __future__ import annotations

from typing import Any

import msgspec
from memory_api import Json

from oarlock_api.contract.report import Report
from oarlock_operator.pods.pod_facts import RawPod

REPORT = Report(2, 1, "pod-uid", "GPU", 80, "2026-01-01T12:00:00+00:00", "XID 79")


def pod(status: Json | None = None, **metadata: Any) -> Json:
    labels = {
        "oarlock.dev/job": "flux",
        "oarlock.dev/job-uid": "uid-1",
        "oarlock.dev/attempt": "2",
        "oarlock.dev/rank": "1",
    }
    owner = {"uid": "uid-1", "kind": "TrainingJob"}
    known = {
        "namespace": "default",
        "name": "flux-2-1",
        "uid": "pod-uid",
        "labels": labels,
        "ownerReferences": [owner],
        **metadata,
    }
    return {"metadata": known, "spec": {"nodeName": "node-b"}, **({"status": status} if status is not None else {})}


def as_raw(*arguments: Any, **more: Any) -> RawPod:
    return msgspec.convert(pod(*arguments, **more), RawPod)


def container(**state: Any) -> list[Json]:
    other = {"name": "sidecar", "state": {"terminated": {"exitCode": 9}}}
    return [other, {"name": "trainer", "state": state}]


def condition(kind: str, status: str, **more: str) -> Json:
    return {"type": kind, "status": status, **more}
