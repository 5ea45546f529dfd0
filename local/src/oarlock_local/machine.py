"""What this machine must have for a cluster, checked before anything is started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from oarlock_local.errors import MachineError

_OTHERWISE = "Any other cluster does as well: point KUBECONFIG to it (kind, minikube, or a real one)."


def why_no_control_plane() -> str | None:
    """The reason why this machine cannot run a control plane; None where it can."""
    if sys.platform != "linux":
        return f"local clusters need Linux; this is {sys.platform}. {_OTHERWISE}"
    return None


def why_no_nodes() -> str | None:
    """The reason why this machine cannot run nodes; None where it can."""
    if reason := why_no_control_plane():
        return reason
    if os.geteuid() != 0:
        return (
            "nodes need root: they are made of network, mount and process namespaces and of cgroups. Run it as root, "
            f"or take `--control-plane-only`, which runs no pods. {_OTHERWISE}"
        )
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            return f"`{program}` is missing: install {package}. {_OTHERWISE}"
    if not Path("/sys/fs/cgroup").is_mount() or not os.access("/sys/fs/cgroup", os.W_OK):
        return f"/sys/fs/cgroup is not mounted, or not writable: containers cannot be limited here. {_OTHERWISE}"
    attempt = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "ip", "link", "show"],
        check=False,
        capture_output=True,
        text=True,
    )
    if attempt.returncode != 0:
        return f"this machine lets root make no namespaces ({attempt.stderr.strip()}). {_OTHERWISE}"
    return None


def require(*, nodes: bool) -> None:
    """Raise MachineError with the reason where the machine cannot run that."""
    if reason := why_no_nodes() if nodes else why_no_control_plane():
        raise MachineError(reason)
