"""A rank computes on the cores beside its GPU: memory of the other socket is read over the link between the two.

By what sysfs says of the GPU, within the cores that the pod has. Where it says nothing, or the pod has no core there, nothing
is changed. ACCELERATE_CPU_AFFINITY=0 (accelerate's own variable) leaves ranks where the kernel puts them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

SWITCH = "ACCELERATE_CPU_AFFINITY"
_OFF = frozenset({"0", "false", "no", "off"})
_SYSFS = Path("/sys")


def near(address: str, *, allowed: set[int], sysfs: Path = _SYSFS) -> set[int]:
    """Of the allowed cores, those of the NUMA node that a PCI device such as `0000:dc:00.0` hangs on; all where unknown."""
    try:
        node = int((sysfs / f"bus/pci/devices/{address}/numa_node").read_text())
        if node < 0:  # a machine with one node, or firmware that does not tell
            return allowed
        there = parse_cores((sysfs / f"devices/system/node/node{node}/cpulist").read_text())
    except (OSError, ValueError):
        return allowed
    return there & allowed or allowed


def parse_cores(text: str) -> set[int]:
    """The kernel's list of cores, such as `0-15,64-79`. Raises ValueError."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def pin(device: torch.device, environment: Mapping[str, str], *, sysfs: Path = _SYSFS) -> set[int]:
    """Bind all threads of this process, and so those to come, to the cores near a GPU. Returns the cores that it has now."""
    allowed = os.sched_getaffinity(0)
    if device.type != "cuda" or environment.get(SWITCH, "").lower() in _OFF:
        return allowed
    cores = near(_address(torch.cuda.get_device_properties(device)), allowed=allowed, sysfs=sysfs)
    if cores != allowed:
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread.name), cores)
    return cores


def _address(properties: Any) -> str:
    """As sysfs has it. torch's stubs do not know these fields."""
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
