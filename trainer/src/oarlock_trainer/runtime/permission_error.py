"""Why a path is denied to this process: who asks, what stands in the way, whose that is, and what mends it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def explain(error: PermissionError, *, writing: bool = False, below: Path | None = None) -> str:
    """One sentence and its remedies.

    `writing`: more than reading was tried. `below`: the folder that all such files lie in, to be mended as a whole.
    """
    user, group = os.geteuid(), os.getegid()
    if not isinstance(error.filename, str | os.PathLike):
        return f"user {user}:{group}: {error}"
    # What a link leads to decides; a folder on the way there, and not the name, may be what is closed.
    path = Path(error.filename).resolve()
    writing = writing and (not os.path.lexists(path) or _may(path, os.R_OK))
    barrier = _barrier(path, writing=writing)
    facts = barrier.lstat()
    which = "it" if barrier == path else str(barrier)
    return (
        f"user {user}:{group} may not {'write' if writing else 'read'} {path}: {which} belongs to "
        f"{facts.st_uid}:{facts.st_gid}, mode {stat.S_IMODE(facts.st_mode):04o}. To mend it, "
        f"{', or '.join(_remedies(barrier, facts, writing=writing, below=below))}"
    )


def _barrier(path: Path, *, writing: bool) -> Path:
    """The first folder above `path` that may not be entered; else the path, or the folder that it would be made in."""
    for folder in reversed(path.parents):
        if not _may(folder, os.X_OK):
            return folder
    if writing and (not path.exists() or not _may(path.parent, os.W_OK)):
        return path.parent
    return path


def _remedies(barrier: Path, facts: os.stat_result, *, writing: bool, below: Path | None) -> list[str]:
    needed = (os.W_OK if writing else os.R_OK) | (os.X_OK if stat.S_ISDIR(facts.st_mode) else 0)
    if _may(barrier, needed):
        return ["look at the export's squashing of users, at ACLs and at SELinux: the mode alone would allow it"]
    if writing:
        remedies = [f"give {barrier} to {os.geteuid()}:{os.getegid()}"]
    elif below is not None and barrier.is_relative_to(below.resolve()):
        remedies = [f"let others read all of it: chmod -R a+rX {below}"]
    else:
        remedies = [f"let others read it: chmod a+rX {barrier}"]
    if facts.st_uid not in (0, os.geteuid()):
        remedies.append(f"run as user {facts.st_uid} (spec.pod.securityContext.runAsUser)")
    return remedies


def _may(path: Path, what: int) -> bool:
    return os.access(path, what, effective_ids=True)
