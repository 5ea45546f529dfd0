"""Nodes with GPUs on a real API server, which no kubelet stands behind."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from processes import Api

NODES = "/api/v1/nodes"


def make_node(api: Api, name: str) -> None:
    """A node that says that it is Ready and has two GPUs."""
    ready = {"type": "Ready", "status": "True", "reason": "Test"}
    times = {"lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    state = {"allocatable": {"nvidia.com/gpu": "2"}, "conditions": [{**ready, **times}]}
    api.call("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    api.merge(f"{NODES}/{name}/status", {"status": state})


@contextmanager
def gpu_nodes(api: Api, count: int = 6) -> Iterator[list[str]]:
    """Some of them, for the length of the block."""
    names = [f"gpu-{uuid.uuid4().hex[:6]}" for _ in range(count)]
    for name in names:
        make_node(api, name)
    yield names
    for name in names:
        api.call("DELETE", f"{NODES}/{name}")


def node(api: Api, name: str) -> dict[str, Any]:
    """One as it is now."""
    found: dict[str, Any] = api.call("GET", f"{NODES}/{name}")
    return found


def cordoned(api: Api, name: str) -> bool:
    """Whether the scheduler keeps off it."""
    return bool(node(api, name)["spec"].get("unschedulable"))


def annotation(api: Api, name: str, kind: str) -> Any:
    """What Oarlock has written on it, read."""
    said = (node(api, name)["metadata"].get("annotations") or {}).get(f"oarlock.dev/{kind}")
    return json.loads(said) if said else None
