"""Nodes, as far as gangs care: which are in trouble. A watch tells when to look; whether it is so is read live.

Needs the right to get, list and watch nodes. Without it (namespaced mode) a lost node is read from the pods' own
conditions, half a minute later. Single-threaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from oarlock_api.contract.node_marks import CORDONED, ENDED
from oarlock_operator.kube.api_error import ApiError, NotFound
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.cordon_marks import given_back, last_mark
from oarlock_operator.model.node_maintenance import maintenance_of
from oarlock_operator.model.observation import Pod
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.nodes.gpu_fault_history import read_strikes

PARALLEL = 16
MOST_GONE = 1024
"""Names kept of nodes that were deleted: autoscalers make new ones for ever, and pods of a deleted node are gone soon."""


@dataclass(slots=True)
class _Boot:
    """The start that a node is in. `since`: when a watch saw it begin; None where the watch is younger."""

    number: str
    since: datetime | None = None


class TroubledNodes:
    """Nodes that a watch last saw gone, not ready, unreachable, or marked by somebody; and which of them it saw restart."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """`clock` is the wall clock in UTC."""
        self._troubled: dict[str, Node] = {}
        self._boots: dict[str, _Boot] = {}
        self._clock = clock

    def with_restarts(self, pods: Iterable[Pod], nodes: Mapping[str, Node]) -> tuple[Pod, ...]:
        """The pods; of one whose end nobody knows, with whether its node, read just now, has started anew under it."""
        return tuple(
            replace(pod, node_restarted=True)
            if pod.ending and pod.ending.unexplained and self._restarted(nodes.get(pod.node), pod.placed_at)
            else pod
            for pod in pods
        )

    def _restarted(self, node: Node | None, since: datetime | None) -> bool:
        """A hint: the watch must have seen the node before."""
        boot = self._boots.get(node.name) if node else None
        if node is None or boot is None or not node.boot_id:
            return False
        return node.boot_id != boot.number or (boot.since is not None and (since is None or boot.since > since))

    def _note_boot(self, node: Node) -> None:
        before = self._boots.get(node.name)
        if node.boot_id and (before is None or before.number != node.boot_id):
            self._boots[node.name] = _Boot(node.boot_id, self._clock() if before else None)

    def note(self, raw: dict[str, Any], *, deleted: bool) -> bool:
        """Remember a node's state; whether its trouble changed with this, or our mark on it is to be removed."""
        seen = read_node(raw)
        if deleted:
            self._boots.pop(seen.name, None)
        else:
            self._note_boot(seen)
        node = replace(seen, exists=not deleted, boot_id="", strikes=(), uid="", cordon=None, given_back=None)
        troubled = deleted or not node.ready or node.maintenance is not None
        before = self._troubled.pop(node.name, None)
        if troubled:
            self._troubled[node.name] = node
        if deleted:
            self._forget_the_oldest()
        return before != (node if troubled else None) or (not deleted and is_stale(raw))

    def _forget_the_oldest(self) -> None:
        gone = [name for name, node in self._troubled.items() if not node.exists]
        for name in gone[:-MOST_GONE]:
            del self._troubled[name]

    def among(self, names: Iterable[str]) -> set[str]:
        """Those of `names` that are in trouble."""
        return {name for name in names if name in self._troubled}


def read_node(raw: dict[str, Any]) -> Node:
    """A node's facts. One that says nothing of itself yet is not ready.

    The taint for unreachable nodes is not asked: it comes after the condition, and stays for seconds on a node that is back.
    """
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    ready = next((c.get("status") for c in status.get("conditions") or [] if c.get("type") == "Ready"), "")
    metadata = raw["metadata"]
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        ready=ready == "True",
        unreachable=ready == "Unknown",
        boot_id=(status.get("nodeInfo") or {}).get("bootID") or "",
        maintenance=maintenance_of(raw),
        unschedulable=bool(spec.get("unschedulable")),
        cordon=last_mark(metadata["name"], metadata.get("annotations")),
        given_back=given_back(metadata.get("annotations")),
        strikes=read_strikes(raw),
    )


def is_stale(raw: dict[str, Any]) -> bool:
    """Whether a person has uncordoned what Oarlock had cordoned: that is their right, and ends our mark."""
    return CORDONED in (raw["metadata"].get("annotations") or {}) and not (raw.get("spec") or {}).get("unschedulable")


async def remove_mark(cluster: Cluster, name: str) -> None:
    """End our mark on a node that is not cordoned any more; what it said is kept under another name. Raises ApiError."""
    try:
        raw = await cluster.get(f"/api/v1/nodes/{name}")
    except NotFound:
        return
    if is_stale(raw):
        metadata = raw["metadata"]
        changed = {CORDONED: None, ENDED: metadata["annotations"][CORDONED]}
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": changed}}
        await cluster.merge(f"/api/v1/nodes/{name}", patch)


async def read_nodes(cluster: Cluster, names: Iterable[str]) -> dict[str, Node]:
    """The nodes named, live; those that may not be read are left out. Raises ApiError."""
    gate = asyncio.Semaphore(PARALLEL)

    async def read(name: str) -> Node | None:
        async with gate:
            try:
                return read_node(await cluster.get(f"/api/v1/nodes/{name}"))
            except NotFound:
                return Node(name=name, exists=False, ready=False)
            except ApiError as error:
                if error.status == 403:
                    return None
                raise

    found = await asyncio.gather(*(read(name) for name in sorted(set(names))))
    return {node.name: node for node in found if node is not None}
