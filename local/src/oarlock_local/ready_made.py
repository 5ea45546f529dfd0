"""Programs that are on this machine already: they need not be built.

A whole folder of them is named by OARLOCK_LOCAL_BIN. Else those on PATH are taken whose own words say that they are of
the version that would be built; the rest is built.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oarlock_local.binaries import Part

_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Question:
    """How a program is asked for its version, and the Go module whose version in go.mod that must be."""

    module: str
    arguments: tuple[str, ...] = ("--version",)


_KUBERNETES = Question("k8s.io/kubernetes")
_CONTAINERD = "github.com/containerd/containerd/v2"
QUESTIONS: Mapping[str, Question] = {
    "etcd": Question("go.etcd.io/etcd/server/v3"),
    **dict.fromkeys(("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"), _KUBERNETES),
    "kubectl": Question("k8s.io/kubernetes", ("version", "--client")),
    "containerd": Question(_CONTAINERD),
    "containerd-shim-runc-v2": Question(_CONTAINERD, ("-v",)),
    "ctr": Question(_CONTAINERD),
    "coredns": Question("github.com/coredns/coredns", ("-version",)),
    "helm": Question("helm.sh/helm/v4", ("version", "--short")),
    "kwok": Question("sigs.k8s.io/kwok"),
    "promtool": Question("github.com/prometheus/prometheus"),
    "versitygw": Question("github.com/versity/versitygw"),
}
"""By the name of the program. What is not here is small, or ours, and always built."""


def on_path(part: Part, modules: Path, questions: Mapping[str, Question] = QUESTIONS) -> dict[str, Path]:
    """The programs of a part, by name, where all of them are on PATH in the right version; else none."""
    if not all(name in questions for name in part.programs):
        return {}
    pins = (modules / part.module / "go.mod").read_text()
    found = {name: _of_version(name, questions[name], pins) for name in part.programs}
    return {name: path for name, path in found.items() if path} if all(found.values()) else {}


def copy(programs: Mapping[str, Path], folder: Path) -> None:
    """Put them into a folder, each whole or not at all: what is on PATH may be another version tomorrow."""
    for name, path in programs.items():
        unfinished = folder / f".{name}.unfinished"
        unfinished.unlink(missing_ok=True)
        shutil.copy(path, unfinished)
        unfinished.rename(folder / name)


def _of_version(name: str, question: Question, pins: str) -> Path | None:
    """The program on PATH if it is of the pinned version, and no script that would not work from elsewhere."""
    pinned = re.search(rf"^(?:require)?\s*{re.escape(question.module)} v(\S+)", pins, re.MULTILINE)
    found = shutil.which(name)
    if not pinned or not found:
        return None
    path = Path(found).resolve()
    with suppress(OSError, subprocess.TimeoutExpired):
        with path.open("rb") as program:
            if program.read(len(_ELF)) != _ELF:
                return None
        said = subprocess.run([found, *question.arguments], capture_output=True, text=True, timeout=10, check=False)
        if re.search(rf"(?<![\d.]){re.escape(pinned[1])}(?![\w.~-])", said.stdout + said.stderr):
            return path
    return None
