"""Builds the binaries once into the cache, and finds them there ever after.

Two builders at a time take turns by a file lock, and the second finds the work done. A binary gets its name only
when it is complete, so an interrupted build leaves nothing that looks finished. What is on PATH in the right version is
copied instead; `OARLOCK_LOCAL_BIN=DIR` names a folder of ready-made binaries to use instead of all.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from oarlock_local.binaries import Part, cache_key, control_plane_parts, modules_folder, node_parts
from oarlock_local.build_progress import Progress
from oarlock_local.errors import BuildError
from oarlock_local.folders import cache_folder
from oarlock_local.processes import cpu_seconds_below
from oarlock_local.ready_made import copy, on_path

READY_MADE = "OARLOCK_LOCAL_BIN"


def has_libseccomp() -> bool:
    """Whether runc can be built to enforce seccomp profiles here."""
    if shutil.which("pkg-config") is None:
        return False
    return subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False).returncode == 0


def binaries(*, nodes: bool, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stderr) -> Path:
    """The folder with all binaries that a cluster needs, built first where they are missing.

    Without `nodes` only the control plane's are promised. Raises BuildError with the compiler's last words.
    """
    if ready_made := environ.get(READY_MADE):
        return _ready_made(Path(ready_made), nodes=nodes)
    seccomp = has_libseccomp()
    modules = modules_folder()
    # One folder for both sizes of a cluster: what a control plane needs is a part of what nodes need.
    folder = cache_folder(environ) / "local" / cache_key(modules, node_parts(seccomp=seccomp))
    parts = node_parts(seccomp=seccomp) if nodes else control_plane_parts()
    build_into(folder, parts, modules, out)
    return folder


def built(part: Part, *, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stderr) -> Path:
    """One program, built first where it is missing. Raises BuildError with the compiler's last words."""
    if ready_made := environ.get(READY_MADE):
        return lacking_nothing(Path(ready_made), (part,)) / part.binary
    modules = modules_folder()
    folder = cache_folder(environ) / "local" / f"{part.binary}-{cache_key(modules, (part,))}"
    build_into(folder, (part,), modules, out)
    return folder / part.binary


def build_into(folder: Path, parts: Sequence[Part], modules: Path, out: TextIO) -> None:
    """Build those of the parts that the folder lacks; safe against other builders of the same folder."""
    if not _missing(folder, parts):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _taking_turns(folder / "build.lock", out):
        # What was missing before may have been built by whoever had the lock.
        _take_from_path(_missing(folder, parts), modules, folder, out)
        _build(_missing(folder, parts), modules, folder, out)


def enforces_seccomp(folder: Path) -> bool:
    """Whether the runc in that folder is one that applies seccomp profiles."""
    output = subprocess.run([folder / "runc-plain", "features"], check=True, capture_output=True).stdout
    return bool((json.loads(output)["linux"].get("seccomp") or {}).get("enabled"))


def _ready_made(folder: Path, *, nodes: bool) -> Path:
    return lacking_nothing(folder, node_parts(seccomp=True) if nodes else control_plane_parts())


def lacking_nothing(folder: Path, parts: Sequence[Part]) -> Path:
    """A folder of ready-made programs that has these; raises BuildError where it has not."""
    if missing := _missing(folder, parts):
        gaps = {name for part in missing for name in part.programs if not (folder / name).exists()}
        raise BuildError(
            f"{READY_MADE}={folder} lacks {', '.join(sorted(gaps))}. Unset it to build them into the cache."
        )
    return folder.absolute()


def _missing(folder: Path, parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if not all((folder / name).exists() for name in part.programs)]


@contextmanager
def _taking_turns(lock: Path, out: TextIO) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(" tools      another build is running; waiting for it", file=out, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _take_from_path(parts: Sequence[Part], modules: Path, folder: Path, out: TextIO) -> None:
    for part in parts:
        if programs := on_path(part, modules):
            copy(programs, folder)
            print(f" tools      {part.binary}: taken from {next(iter(programs.values())).parent}", file=out, flush=True)


def _build(parts: Sequence[Part], modules: Path, folder: Path, out: TextIO) -> None:
    if not parts:
        return
    _require_compilers()
    print(f" tools      building {len(parts)} programs from source, once, into {folder}", file=out, flush=True)
    progress = Progress(parts, out, cores=len(os.sched_getaffinity(0)))
    for part in parts:
        progress.begin()
        _build_one(part, modules, folder, progress.tell)
        progress.done()


def _build_one(part: Part, modules: Path, folder: Path, show: Callable[[float], None]) -> None:
    unfinished = folder / f".{part.binary}.unfinished"
    # The linker refuses to write over what an interrupted build left.
    unfinished.unlink(missing_ok=True)
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-tags", ",".join(part.tags)]
    command += ["-ldflags", f"-s -w {part.link_flags}".strip(), "-o", str(unfinished), part.package]
    environ = {**os.environ, "CGO_ENABLED": "1" if part.cgo else "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    log = folder / f"{part.binary}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=modules / part.module, env=environ, stdout=output, stderr=output)
        try:
            while True:
                try:
                    code = process.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    show(cpu_seconds_below(process.pid))
        finally:
            process.kill()
    if code != 0:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        raise BuildError(
            f"{part.binary} did not build (go build in {modules / part.module}, exit {code}):\n{last}\n"
            f"The whole output is in {log}. Mend what it names and run the command again: finished parts are kept."
        )
    unfinished.rename(folder / part.binary)
    for name in part.names:
        link = folder / f".{name}.unfinished"
        link.unlink(missing_ok=True)
        link.symlink_to(part.binary)
        link.rename(folder / name)
    log.unlink()


def _require_compilers() -> None:
    if missing := [name for name in ("go", "gcc") if shutil.which(name) is None]:
        raise BuildError(
            f"{' and '.join(missing)} not found on PATH. Install Go (1.21 or later: it fetches the exact version by "
            f"itself) and a C compiler, or point {READY_MADE} to ready-made binaries."
        )
