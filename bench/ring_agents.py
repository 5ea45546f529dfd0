"""The agents of a ring, one for each rank of a measurement: what copies a node's state to the next, and nothing else.

ring_agents.start(2, folder)      or by itself: python bench/ring_agents.py NODE FOLDER PORT,PORT
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

JOB_UID, ATTEMPT = "bench", 1
_KEY = b"k" * 32


def folder(home: Path, node: int) -> Path:
    """Where a node's memory is."""
    return home / str(node) / f"oarlock-{JOB_UID}-a{ATTEMPT}"


def start(nodes: int, home: Path) -> list[subprocess.Popen[bytes]]:
    """The agents' processes; the caller ends them."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
    ports = ",".join(str(one.getsockname()[1]) for one in listening)
    for node, one in enumerate(listening):
        one.close()
        folder(home, node).parent.mkdir()
    command = [sys.executable, __file__]
    return [subprocess.Popen([*command, str(node), str(home), ports]) for node in range(nodes)]


def main() -> None:
    """Be one, until killed."""
    from oarlock_api.contract.rounds import InPlace  # noqa: PLC0415
    from oarlock_trainer.agent.ring.ring import Ring  # noqa: PLC0415
    from oarlock_trainer.agent.status.status_server import StatusServer  # noqa: PLC0415
    from oarlock_trainer.runtime.assignment import Assignment, Pod  # noqa: PLC0415

    node, home, ports = int(sys.argv[1]), Path(sys.argv[2]), [int(port) for port in sys.argv[3].split(",")]
    memory = SimpleNamespace(every_steps="Auto")
    recovery = SimpleNamespace(in_place=InPlace.AUTO, memory=memory, standby_seconds=300)
    job: Any = SimpleNamespace(
        nodes=len(ports), gpus_per_node=0, recovery=recovery, custom=None, job_uid=JOB_UID, attempt=ATTEMPT
    )
    pod = Pod(rank=node, job="", attempt=ATTEMPT, pod_uid="", node="", replaces_pods=True)
    peers = tuple(("127.0.0.1", port) for port in ports)
    assignment = Assignment(
        pod=pod, job=job, master_address="", master_port=1, simulate_gpus=False, key=_KEY, peers=peers
    )
    ring = Ring(assignment, folder(home, node), _KEY)
    status: Any = None
    StatusServer(port=ports[node], job="", status=lambda: status, alive=lambda: True, parts=ring.server)
    ring.begin(1, None)
    threading.Event().wait()


if __name__ == "__main__":
    main()
