"""The network between nodes as NCCL finds it in this pod: InfiniBand's devices, the memory they may lock, what NCCL took.

NCCL says which network it takes in its own log alone, so that log goes into a file in memory while the ranks meet. No torch
here: the agent reads the same facts before the ranks start.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SOCKET = "Socket"
"""NCCL's name for TCP."""
_IPC_LOCK = 14
"""CAP_IPC_LOCK of capabilities(7): who has it in effect may lock as much as it likes."""
_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
_FILE = "NCCL_DEBUG_FILE"
_TOOK = re.compile(r"(?:Using network|Assigned NET plugin) (.+?)(?: to comm)?$", re.MULTILINE)
"""Said once for each communicator, by NCCL 2.29 as "Assigned NET plugin IB to comm", before as "Using network IB"."""
_DIRECT = re.compile(r"via NET/\S*/GDRDMA")
_LONGEST_LOG = 4 << 20


@dataclass(frozen=True, slots=True)
class Fabric:
    """`devices`: InfiniBand's in this pod; `lockable`: bytes that a process may lock, None = as many as it likes."""

    devices: tuple[str, ...]
    lockable: int | None

    def hindrance(self) -> str:
        """Why NCCL can't use the devices, and what mends it; empty where nothing is known to stand in the way."""
        if not self.devices or self.lockable is None:
            return ""
        return (
            f"InfiniBand is in the pod ({', '.join(self.devices)}), and its processes may lock {self.lockable >> 10} KiB of "
            "memory only (ulimit -l): NCCL can't register its buffers. On the node, set LimitMEMLOCK=infinity for containerd "
            "(systemctl edit containerd), restart it, and start the pods anew; IPC_LOCK in the pod's securityContext helps "
            "root alone"
        )

    def trouble(self, network: str) -> str:
        """What is wrong with the network that NCCL took, by its name there; empty where nothing is, or none is known."""
        if not self.devices or network != SOCKET:
            return ""
        why = self.hindrance() or (
            f"InfiniBand is in the pod ({', '.join(self.devices)}), and NCCL does not use it: look at NCCL_IB_DISABLE, "
            "NCCL_IB_HCA and NCCL_NET in spec.pod.env, at ibstat on the node, and run with NCCL_DEBUG=INFO there"
        )
        return f"NCCL takes TCP. {why}"


def read_fabric(root: Path = Path("/")) -> Fabric:
    """What this pod has. `root`: where /dev and /proc lie."""
    devices = sorted(path.name for path in (root / "dev/infiniband").glob("uverbs*"))
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    free = limit == resource.RLIM_INFINITY or _has_ipc_lock(root / "proc/self/status")
    return Fabric(devices=tuple(devices), lockable=None if free else limit)


def _has_ipc_lock(status: Path) -> bool:
    with contextlib.suppress(OSError):
        if found := re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE):
            return bool(int(found[1], 16) >> _IPC_LOCK & 1)
    return False


def network_of(log: str) -> str:
    """The network in NCCL's words, such as `IB with GPUDirect RDMA`, `IB` or `Socket`; empty where they name none. Pure."""
    took = _TOOK.findall(log)
    if not took:
        return ""
    return f"{took[-1]} with GPUDirect RDMA" if _DIRECT.search(log) else str(took[-1])


class NcclLog:
    """NCCL's log of how it begins, from now on. Made before this process's first communicator.

    NCCL reads its settings once, so where the job has chosen NCCL_DEBUG itself, its choice stands and nothing is known here.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._environment = environment
        self._file: int | None = None
        if any(name in environment for name in (*_LOG, _FILE)):
            return
        self._file = os.memfd_create("nccl-log")
        environment.update({**_LOG, _FILE: f"/proc/self/fd/{self._file}"})

    def network(self) -> str:
        """The network that NCCL has taken, see `network_of`. The environment is as it was from then on."""
        if self._file is None:
            return ""
        for name in (*_LOG, _FILE):
            self._environment.pop(name, None)  # NCCL has read them, and no child of this process has the file
        return network_of(os.pread(self._file, _LONGEST_LOG, 0).decode(errors="replace"))
