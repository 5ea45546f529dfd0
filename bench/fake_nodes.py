"""A thousand nodes that are not there: Node objects with eight GPUs each, and KWOK in place of their kubelets.

A pod is Running as soon as it is bound, and gone as soon as it is deleted. Nodes become Ready once: nothing sets one
right that a benchmark has broken.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime

from connection import MERGE, Connection, Json, until

from oarlock_local.binaries import KWOK
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.objects import GPU_RESOURCE
from oarlock_local.processes import start_logged

NODES = "/api/v1/nodes"
LEASE_SECONDS = 1200
"""Heartbeats of a thousand nodes must not load what is measured."""
CAPACITY = {"cpu": "192", "memory": "2Ti", "pods": "110", GPU_RESOURCE: "8"}


@dataclass(frozen=True, slots=True)
class FakeNodes:
    """The nodes, and the process that plays their kubelets."""

    api: Connection
    address: str
    pid: int

    async def create(self, name: str) -> None:
        """Add a node."""
        await self.api.call("POST", NODES, self._node(name))

    async def delete(self, name: str) -> None:
        """Take the Node object away; its pods stay until somebody cares."""
        await self.api.call("DELETE", f"{NODES}/{name}")

    async def set_ready(self, name: str, *, ready: bool) -> None:
        """Have the node's kubelet say that it is, or is not, Ready."""
        status = {"conditions": [_ready(ready=ready)]}
        await self.api.call("PATCH", f"{NODES}/{name}/status", {"status": status}, content=MERGE)

    async def usable(self) -> int:
        """How many nodes take pods: a new one is tainted for a moment."""
        found = json.loads(await self.api.call("GET", NODES))
        return sum(not node["spec"].get("taints") for node in found["items"])

    def _node(self, name: str) -> Json:
        addresses = [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": name}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "capacity": CAPACITY,
                "allocatable": CAPACITY,
                "addresses": addresses,
            },
        }


@asynccontextmanager
async def fake_nodes(cluster: Cluster, api: Connection, count: int) -> AsyncIterator[FakeNodes]:
    """Have `count` nodes for the length of the block; all take pods."""
    address = _own_address()
    config = cluster.kubeconfig.with_name("kwok.yaml")
    config.write_text("\n---\n".join(json.dumps(part) for part in (_options(), *_stages(address))))
    command = [str(built(KWOK)), f"--kubeconfig={cluster.kubeconfig}", f"--config={config}"]
    process = start_logged(command, cluster.logs / "kwok.log")
    try:
        nodes = FakeNodes(api, address, process.pid)
        await asyncio.gather(*(nodes.create(f"fake-{number}") for number in range(count)))

        async def all_take_pods() -> bool:
            if process.poll() is not None:
                raise SystemExit(f"kwok ended; its log is {cluster.logs / 'kwok.log'}")
            return await nodes.usable() >= count

        await until(all_take_pods)
        yield nodes
    finally:
        process.kill()
        process.wait()


def _ready(*, ready: bool) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": "KubeletReady" if ready else "KubeletNotReady",
    }


def _options() -> Json:
    options = {
        "manageAllNodes": True,
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        # A thousand kubelets do not wait for each other, as KWOK's four workers would make them.
        "podPlayStageParallelism": 16,
        # All or none are to be named: where there are options, KWOK takes 0 for those that are missing.
        "podsOnNodeSyncParallelism": 4,
        "nodePlayStageParallelism": 4,
        "nodeLeaseParallelism": 4,
    }
    return {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}


def _stages(address: str) -> list[Json]:
    new = {"key": '.status.conditions.[] | select( .type == "Ready" ) | .status', "operator": "DoesNotExist"}
    here = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    pending = {"key": ".status.phase", "operator": "In", "values": ["Pending"]}
    leaving = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    return [
        # KWOK manages a node, and its pods, only where there is a stage for nodes.
        _stage("Node", "node-comes", [new], {"statusTemplate": json.dumps({"conditions": [_ready(ready=True)]})}),
        _stage("Pod", "pod-runs", [here, pending], {"statusTemplate": _RUNNING.replace("ADDRESS", address)}),
        _stage("Pod", "pod-goes", [leaving], {"delete": True}),
    ]


def _stage(kind: str, name: str, when: list[Json], then: Json) -> Json:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }


_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: ADDRESS
podIP: ADDRESS
podIPs:
- ip: ADDRESS
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"""


def _own_address() -> str:
    """This machine's address: nobody listens on a pod's port there, and who asks it hears so at once.

    Another one would let every read of a pod's progress wait for its limit, which no living pod does.
    """
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "10.0.0.1"
        return str(probe.getsockname()[0])
