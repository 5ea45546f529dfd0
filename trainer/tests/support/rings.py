"""Agents' parts of the ring in one process, each with a folder and a port of its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from agent_process import free_port
from keeping import KEY, OF

from oarlock_api.contract.rounds import InPlace
from oarlock_trainer.agent.ring.ring import Ring
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.checkpoint.memory.held import folder_of, held
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from pathlib import Path


NONE: dict[str, Any] = {"custom": None, "elastic": None}
POD = Pod(rank=0, job="flux", attempt=1, pod_uid="", node="", replaces_pods=True)


def assigned(
    node: int,
    ports: list[int],
    home: Path,
    *,
    incarnation: int = 1,
    gpus_per_node: int = 0,
    nodes: int = 2,
    spares: int = 0,
) -> Assignment:
    memory = SimpleNamespace(every_steps="1")
    recovery = SimpleNamespace(in_place=InPlace.AUTO, memory=memory, standby_seconds=300)
    job: Any = SimpleNamespace(nodes=nodes, spares=spares, gpus_per_node=gpus_per_node, recovery=recovery, **NONE, **OF)
    return Assignment(
        pod=replace(POD, rank=node, incarnation=incarnation),
        job=job,
        master_address="",
        master_port=1,
        simulate_gpus=False,
        key=KEY,
        peers=tuple(("127.0.0.1", port) for port in ports),
        shared_memory=home / str(node),
    )


class Rings:
    """Both agents' rings, and those of spares, each with a folder of its own."""

    def __init__(self, home: Path, *, gpus_per_node: int = 0, nodes: int = 2, spares: int = 0) -> None:
        self.home, self.gpus_per_node, self.nodes, self.spares = home, gpus_per_node, nodes, spares
        pods = range(nodes + spares)
        self.ports = [free_port() for _ in pods]
        self.folders = [folder_of(**OF, shared_memory=home / str(node)) for node in pods]
        for folder in self.folders:
            folder.parent.mkdir()
        self.rings = [self.ring(node) for node in pods]
        for node, ring in enumerate(self.rings):
            self.serve(node, ring)

    def ring(self, node: int, *, incarnation: int = 1) -> Ring:
        how: dict[str, int] = {"gpus_per_node": self.gpus_per_node, "nodes": self.nodes, "spares": self.spares}
        assignment = assigned(node, self.ports, self.home, incarnation=incarnation, **how)
        return Ring(assignment, self.folders[node], KEY)

    def serve(self, node: int, ring: Ring) -> None:
        status: Any = None
        StatusServer(port=self.ports[node], job="flux", status=lambda: status, alive=lambda: True, parts=ring.server)

    def held(self, node: int) -> dict[int, tuple[int, ...]]:
        return {step: places for step, _, places in held(self.folders[node], ranks_per_node=1)}
