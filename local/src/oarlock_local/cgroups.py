"""The cgroups of the nodes: one tree per node, under names that tell their cluster's slot.

Hosts with cgroup v1 (also in the hybrid layout) have one hierarchy per controller, and a node gets its tree in each;
hosts with cgroup v2 have one. Cgroups are the one thing that the kernel does not take away with a cluster's
processes, so `sweep` removes the trees of slots that nobody holds.
"""

import errno
import re
from collections.abc import Iterable
from pathlib import Path

from oarlock_local.errors import MachineError
from oarlock_local.slots import lease

_ROOT = Path("/sys/fs/cgroup")
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def tree_name(slot: int, node: str) -> str:
    """The name of a node's tree, directly under the root of each hierarchy."""
    return f"oarlock-{slot}-{node}"


def is_v2(root: Path = _ROOT) -> bool:
    """Whether the machine has cgroup v2 alone."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = _ROOT) -> list[Path]:
    """The folders in which a tree is made: one under cgroup v2, one per mounted hierarchy under v1."""
    if is_v2(root):
        return [root]
    # Names like "cpu,cpuacct" have links "cpu" and "cpuacct" beside them: the same hierarchy is wanted once.
    found = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    return [path for path in found if (path / "cgroup.procs").exists()]


def create(name: str, root: Path = _ROOT) -> None:
    """Make an empty tree of that name, ready for the kubelet; one that is there already is emptied first."""
    remove(name, root)
    if is_v2(root):
        _enable_controllers(root)
    for hierarchy in hierarchies(root):
        tree = hierarchy / name
        tree.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # A new v1 cpuset is empty and takes no process; a v2 one inherits.
            if not is_v2(root) and (hierarchy / setting).exists():
                (tree / setting).write_text((hierarchy / setting).read_text())


def remove(name: str, root: Path = _ROOT) -> None:
    """Remove the tree of that name; what still holds processes stays."""
    for hierarchy in hierarchies(root):
        tree = hierarchy / name
        if tree.is_dir():
            _remove_empty([*tree.rglob("*/"), tree])


def sweep(root: Path = _ROOT) -> None:
    """Remove the trees of clusters that are no more, however they ended."""
    if not root.is_dir():
        return
    names = {path.name for hierarchy in hierarchies(root) for path in hierarchy.glob("oarlock-*-*")}
    for name in sorted(names):
        if not (match := re.fullmatch(r"oarlock-(\d+)-.+", name)):
            continue
        # Holding the slot meanwhile keeps a cluster that starts right now from taking it.
        if holder := lease(int(match[1])):
            with holder:
                remove(name, root)


def _enable_controllers(root: Path) -> None:
    available = (root / "cgroup.controllers").read_text().split()
    enabled = (root / "cgroup.subtree_control").read_text().split()
    for controller in _V2_CONTROLLERS:
        if controller not in available or controller in enabled:
            continue
        try:
            (root / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            raise MachineError(
                f"the cgroup controller {controller!r} cannot be enabled in {root}/cgroup.subtree_control: "
                f"{error.strerror}. In a container, start it with --cgroupns=host or move its processes into a "
                "sub-cgroup first; or use any other cluster by KUBECONFIG."
            ) from error


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOENT, errno.ENOTEMPTY):
                raise
