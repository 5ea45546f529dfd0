"""Mounting inside a node's own mount namespace, without a `mount` program per call."""

import ctypes
import os
from pathlib import Path

_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SHARED = 0x100000
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path, kind: str, flags: int, data: str) -> None:
    if _libc.mount(source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or source} on {target} ({data}): {os.strerror(number)}")


def share_all() -> None:
    """Let mounts made from now on be seen by the mount namespaces that are made from this one: containers'."""
    _mount("none", Path("/"), "", _MS_REC | _MS_SHARED, "")


def fresh(target: Path) -> None:
    """Cover a folder with an empty file system in memory."""
    _mount("tmpfs", target, "tmpfs", 0, "mode=0755")


def bind(source: Path, target: Path) -> None:
    """Show a folder at another path as well."""
    _mount(os.fspath(source), target, "", _MS_BIND | _MS_REC, "")


def overlay(target: Path, scratch: Path) -> None:
    """Keep what a folder shows, but send all that is written there to `scratch`, which must be empty."""
    upper, work = scratch / "upper", scratch / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    _mount("overlay", target, "overlay", 0, f"lowerdir={target},upperdir={upper},workdir={work}")
