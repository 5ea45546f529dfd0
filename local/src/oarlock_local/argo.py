"""The programs of Argo Workflows, built from its Go module: its CLI, its controller, and what its pods run.

The module does not build as Go fetches it. It lacks a symbolic link, which Go leaves out of modules, and the pages of Argo's
server, which a release puts there first. So a copy is built that has the link, and pages with nothing on them.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from oarlock_local.binaries import Part, cache_key
from oarlock_local.build import READY_MADE, build_into, lacking_nothing
from oarlock_local.folders import cache_folder
from oarlock_local.sources import ARGO_WORKFLOWS

PROGRAMS = tuple(
    Part(
        binary=name,
        module="argo-workflows",
        package=f"./cmd/{name}",
        link_flags=f"-X {ARGO_WORKFLOWS.module}.version={ARGO_WORKFLOWS.version}",
    )
    for name in ("argo", "argoexec", "workflow-controller")
)
_LINKED = Path("workflow/executor/osspecific")
_PAGE = Path("ui/dist/app/index.html")


def argo(*, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stderr) -> Path:
    """The folder with Argo's programs, built first where they are missing. Raises BuildError and SourceMissing."""
    if ready_made := environ.get(READY_MADE):
        return lacking_nothing(Path(ready_made), PROGRAMS)
    with TemporaryDirectory() as modules:
        folder = cache_folder(environ) / "local" / f"argo-{cache_key(Path(modules), PROGRAMS)}"
        if not all((folder / part.binary).exists() for part in PROGRAMS):
            _copy(Path(modules) / "argo-workflows")
            build_into(folder, PROGRAMS, Path(modules), out)
    return folder


def _copy(target: Path) -> None:
    # Without the modes: the module's files are read-only.
    shutil.copytree(ARGO_WORKFLOWS.fetch(), target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*/")):
        path.chmod(0o755)
    shutil.copyfile(target / _LINKED / "signal_darwin.go", target / _LINKED / "signal_linux.go")
    (target / _PAGE).parent.mkdir(parents=True)
    (target / _PAGE).touch()
