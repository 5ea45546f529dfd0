"""Nodes as the API server sends them, for tests of what is read from them."""

from __future__ import annotations

from memory_api import Json


def node(name: str = "n1", *, ready: str = "True", tainted: bool = False) -> Json:
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}] if tainted else []
    return {
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": "boot-1"}},
    }
