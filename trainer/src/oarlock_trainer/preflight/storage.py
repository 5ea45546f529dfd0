"""Find out whether the output is there, writable and large enough, seen from this pod.

Runs in a process of its own (child.py, or `oarlock-trainer check-storage`), because every call here may hang for ever on
a dead mount. Each refusal says who tried, what stands in the way in numbers, and what mends it. What an earlier crash left
behind never stands in the way: names are unique, and leftovers are swept once they are an hour old.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import PRIVATE
from oarlock_api.contract.status import CheckResult
from oarlock_trainer.preflight import room
from oarlock_trainer.preflight.finding import Check, Finding

_PROBE_PREFIX = "probe-"
_PROBE = b"oarlock storage probe\n" * 200
"""4.4 kB: more than one page, so that short writes show."""
_LEFTOVER_SECONDS = 3600
_SOFT = (
    "The server or the network to it failed, and the mount is soft, so that it is told: with `hard` among the mount options "
    "a write waits instead of being lost."
)
_REMEDIES = {
    errno.ESTALE: "The export was replaced while it was mounted: unmount it on the node (`umount -f`) or restart the node; "
    "fsid= in the server's /etc/exports keeps an export the same.",
    errno.EIO: _SOFT,
    errno.ETIMEDOUT: _SOFT,
    errno.ENOLCK: "The server gives no locks: it must run rpc.statd for NFS 3, or be mounted with nfsvers=4.2.",
    errno.ENOTCONN: "What was mounted has gone: look at the storage's driver on the node.",
}
"""What mends an error of the storage that is neither room nor rights."""


class UnusableOutputError(Exception):
    """The output can't be used. The message says why in numbers, and what to do."""


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount that a path lies on, from /proc/self/mountinfo."""

    point: str
    kind: str
    source: str

    def __str__(self) -> str:
        return f"{self.kind} {self.source} at {self.point}"


def find(
    *,
    directory: str,
    node: str = "",
    min_free: int | None = None,
    model: str | None = None,
    keep: int = 0,
    values: int = 0,
) -> Finding:
    """The check as preflight orders it. Without `min_free`, room for `keep` checkpoints of `model` is needed."""
    needed = room.estimate(Path(model), keep=keep, values=values) if min_free is None and model else min_free
    try:
        said = check(Path(directory), min_free=needed, node=node)
    except UnusableOutputError as error:
        return Finding(check=Check.STORAGE, result=CheckResult.FAILED, detail=str(error), code=ExitCode.STORAGE)
    return Finding(check=Check.STORAGE, result=CheckResult.PASSED, detail=said)


def check(directory: Path, *, min_free: int | None, node: str = "") -> str:
    """Make the directory, write and read a probe in it, compare the free space with `min_free` bytes.

    The job's own checkpoints count as free. Returns one sentence for the log. Raises StorageError.
    """
    who = f"output: node {node}" if node else "output: this pod"
    mount = find_mount(directory, Path("/proc/self/mountinfo"))
    try:
        private = directory / PRIVATE
        private.mkdir(parents=True, exist_ok=True)
        same = _write_probe(private)
    except OSError as error:
        raise UnusableOutputError(_explain(error, directory=directory, mount=mount, who=who)) from error
    if not same:
        raise UnusableOutputError(
            f"{who} reads other bytes from {private} ({mount}) than it wrote. Look at the storage's own health, and at what "
            "caches between it and the node."
        )
    free = _free_bytes(directory)
    # What a restarted job has saved already is room that it does not need again.
    missing = min_free - free - room.held(directory) if min_free is not None else 0
    if min_free is not None and missing > 0:
        raise UnusableOutputError(
            f"{who} has too little room in {directory} ({mount}): {free} bytes ({_size(free)}) free, "
            f"{min_free} bytes ({_size(min_free)}) needed, {_size(missing)} missing. "
            "Free some, enlarge the volume, lower spec.training.checkpoint.keep, or set spec.output.minFree."
        )
    return f"{directory} ({mount}) is writable, {_size(free)} free"


def _write_probe(folder: Path) -> bool:
    """Write, fsync, rename, read back and delete a file, as a checkpoint will be. Whether it read what it wrote."""
    token = secrets.token_hex(8)
    fresh, final = folder / f"{_PROBE_PREFIX}{token}.new", folder / f"{_PROBE_PREFIX}{token}"
    try:
        with fresh.open("xb") as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(final)
        same = final.read_bytes() == _PROBE
        now = final.stat().st_mtime  # the server's clock, not ours
    finally:
        for path in (fresh, final):
            with contextlib.suppress(OSError):
                path.unlink()
    _sweep(folder, older_than=now - _LEFTOVER_SECONDS)
    return same


def _sweep(folder: Path, *, older_than: float) -> None:
    for path in folder.glob(f"{_PROBE_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < older_than:
                path.unlink()


def _explain(error: OSError, *, directory: Path, mount: Mount, who: str) -> str:
    if error.errno == errno.EROFS:
        return (
            f"{who} cannot write to {directory}: {mount} is mounted read-only. "
            "Mount it read-write: look at readOnly of the volume, the claim's access mode and the export's options."
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{who} cannot write to {directory} ({mount}): {_explain_full(error, directory)}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return _explain_denied(directory, mount, who)
    where = f" ({error.filename})" if error.filename else ""
    remedy = f". {known}" if (known := _REMEDIES.get(error.errno or 0)) else ""
    return f"{who} cannot write to {directory} ({mount}): {error.strerror}{where}{remedy}"


def _explain_full(error: OSError, directory: Path) -> str:
    if error.errno == errno.EDQUOT:
        return f"its quota is used up, {_free_bytes(directory)} bytes free. Free some or enlarge the quota."
    room_for = os.statvfs(_deepest_existing(directory))
    if room_for.f_files and not room_for.f_favail and (free := _free_bytes(directory)):
        return f"it holds as many files as it can, though {free} bytes are free. Delete files, or give it more inodes."
    return f"it is full, {_free_bytes(directory)} bytes free. Free some or enlarge the volume."


def _explain_denied(directory: Path, mount: Mount, who: str) -> str:
    barrier = _deepest_existing(directory / PRIVATE)
    owner = barrier.stat()
    user, group = os.geteuid(), os.getegid()
    squashed = user == 0 and mount.kind.startswith("nfs")
    writer = "root, which the export squashes to nobody" if squashed else f"{user}:{group}"
    remedies = [f"give {barrier} to {user}:{group}"]
    if owner.st_uid != user:
        remedies.insert(0, f"set spec.pod.securityContext.runAsUser to {owner.st_uid}")
    if owner.st_gid != group and owner.st_mode & stat.S_IWGRP:
        remedies.insert(1, f"set spec.pod.securityContext.fsGroup to {owner.st_gid}")
    if squashed:
        remedies[-1] = "export with no_root_squash"
    if owner.st_uid == user and not owner.st_mode & stat.S_IWUSR:
        remedies = [f"give its owner the right to write: chmod u+rwx {barrier}"]
    return (
        f"{who} cannot write to {directory} ({mount}): {barrier} belongs to {owner.st_uid}:{owner.st_gid} "
        f"({stat.S_IMODE(owner.st_mode):04o}), the pod writes as {writer}. To mend it, {', or '.join(remedies)}."
    )


def _deepest_existing(path: Path) -> Path:
    """Deepest part of the path that we can see: what failed, failed there."""
    deepest = Path(path.root)
    for part in reversed([path, *path.parents]):
        try:
            part.stat()
        except OSError:
            break
        deepest = part
    return deepest


def _free_bytes(directory: Path) -> int:
    """Bytes that a user without privileges may still write."""
    room = os.statvfs(_deepest_existing(directory))
    return room.f_bavail * room.f_frsize


def find_mount(path: Path, mountinfo: Path) -> Mount:
    """Mount that holds `path`: the longest mount point above it, the last of equals (it covers the others)."""
    found = Mount(point="/", kind="unknown", source="filesystem")
    with contextlib.suppress(OSError):
        for line in mountinfo.read_text(errors="replace").splitlines():
            left, _, right = line.partition(" - ")
            fields, tail = left.split(), right.split()
            if len(fields) < 6 or len(tail) < 2:
                continue
            point = fields[4].replace("\\040", " ")
            if path.is_relative_to(point) and len(point) >= len(found.point):
                found = Mount(point=point, kind=tail[0], source=tail[1])
    return found


def _size(count: int) -> str:
    """Bytes for people, in the units of Kubernetes."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"
