"""From a cluster to nothing: what `down` does on this machine, and how a cluster is known to be alive.

A cluster's lock file is locked by its supervisor for as long as it lives, so `is_alive` is never wrong, and two `up`
of one name cannot both succeed.
"""

import fcntl
import os
import shutil
import time

from oarlock_local import cgroups, control, network
from oarlock_local.errors import ClusterError, InUseError, LocalError
from oarlock_local.folders import ClusterFolder
from oarlock_local.processes import kill_remembered
from oarlock_local.slots import lease
from oarlock_local.spec import ClusterSpec

END_SECONDS = 30
"""How long a supervisor may take to end its cluster before it is killed."""


def is_alive(folder: ClusterFolder) -> bool:
    """Whether any process of the cluster is left."""
    try:
        descriptor = os.open(folder.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def lock_or_refuse(folder: ClusterFolder) -> int:
    """Lock the cluster's lock file; raises InUseError where the cluster is alive."""
    folder.root.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InUseError(
            f"cluster {folder.name!r} is up already (or starting): `oarlock-local status` shows it, "
            f"`oarlock-local down {folder.name}` ends it, and another name makes another cluster."
        ) from None
    return descriptor


def take_down(folder: ClusterFolder) -> bool:
    """End the cluster, alive or not, and remove everything that it left; tells whether there was anything of it."""
    existed = folder.lock.exists() or folder.root.exists()
    if is_alive(folder):
        try:
            control.ask(folder.control_socket, {"do": "stop"}, seconds=5)
        except LocalError:
            # It ends without an answer, or cannot answer; what counts is whether it is gone.
            _wait_for_end(folder, 2)
    if not _wait_for_end(folder, END_SECONDS / 2):
        kill_remembered(folder.supervisor)
        if not _wait_for_end(folder, END_SECONDS):
            raise ClusterError(f"processes of cluster {folder.name!r} do not end; they keep {folder.lock} open.")
    remove_leftovers(folder)
    folder.lock.unlink(missing_ok=True)
    return existed


def remove_leftovers(folder: ClusterFolder) -> None:
    """Remove everything of a cluster that has no process any more."""
    clear_machine(folder)
    if folder.root.exists():
        shutil.rmtree(folder.root)


def clear_machine(folder: ClusterFolder) -> None:
    """Remove what the kernel does not take away with a cluster's processes, or not at once."""
    if os.geteuid() != 0:
        return
    if folder.spec.exists() and shutil.which("ip"):
        spec = ClusterSpec.load(folder)
        # The slot of a cluster that died long ago may be another cluster's by now, and so may the link.
        if holder := lease(spec.slot):
            with holder:
                network.remove_uplink(spec.addresses)
    cgroups.sweep()


def _wait_for_end(folder: ClusterFolder, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
