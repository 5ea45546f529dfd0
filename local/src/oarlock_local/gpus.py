"""The pretended GPUs of nodes, in every pod of the runtime class `host-userland` of a cluster that advertises GPUs.

Each node has a folder with the pretended NVML and the words that drive it, under its own /run: a reboot clears all
faults. Pods see that folder, read-only, at the same path. Where no C compiler is, GPUs are only advertised.
"""

from pathlib import Path
from typing import Any

from oarlock_local import nvml
from oarlock_local.folders import ClusterFolder
from oarlock_local.spec import ClusterSpec

FOLDER = Path("/run/oarlock-nvml")
_LIBRARY_VARIABLE = "NVML_LIBRARY"
"""Where programs in pods look for the path of a libnvidia-ml.so.1 that the loader would not find."""


def prepare(folder: ClusterFolder) -> str | None:
    """Build the library for the nodes of a cluster; returns the reason where there can't be one."""
    if reason := nvml.why_no_library():
        return reason
    folder.nvml.mkdir()
    nvml.install(folder.nvml)
    return None


def are_pretended(spec: ClusterSpec) -> bool:
    """Whether the nodes of the cluster have GPUs that NVML speaks of."""
    return spec.folder.nvml.exists()


def plug_in(spec: ClusterSpec, node: str) -> None:
    """Give the node that this process runs in its GPUs, all healthy."""
    if not are_pretended(spec):
        return
    FOLDER.mkdir()
    (FOLDER / nvml.LIBRARY).write_bytes((spec.folder.nvml / nvml.LIBRARY).read_bytes())
    nvml.Control(FOLDER).set(f"gpus={spec.gpus}", f"node={node}")


def control_of(init: int) -> nvml.Control:
    """What drives the GPUs of the node whose first process this is."""
    return nvml.Control(Path(f"/proc/{init}/root") / FOLDER.relative_to("/"))


def share(spec: ClusterSpec, base: dict[str, Any]) -> None:
    """Have containers of an OCI base spec see the GPUs of whichever node they run on."""
    if not are_pretended(spec):
        return
    path = str(FOLDER)
    # No "noexec": a library is mapped to be executed.
    options = ["rbind", "ro", "nosuid", "nodev"]
    base["mounts"].append({"destination": path, "source": path, "type": "bind", "options": options})
    base["process"].setdefault("env", []).append(f"{_LIBRARY_VARIABLE}={FOLDER / nvml.LIBRARY}")
