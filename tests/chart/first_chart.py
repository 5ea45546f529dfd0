"""The first chart that there was, from git: what an upgrade begins with."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.chart.rendering import CHART, ROOT


class NoEarlierChart(Exception):  # noqa: N818
    """This checkout does not reach back to the first chart; the message says why."""


def first_chart(folder: Path) -> Path:
    """The chart as the first commit that had one has it, written into `folder`. Raises NoEarlierChart."""
    if shutil.which("git") is None:
        raise NoEarlierChart("the first chart comes from git: install it")
    if _git("rev-parse", "--is-shallow-repository").strip() != b"false":
        raise NoEarlierChart("this clone is shallow, and the first chart is older: git fetch --unshallow")
    added = _git("log", "--diff-filter=A", "--format=%H", "--", str(CHART / "Chart.yaml")).split()
    if not added:
        raise NoEarlierChart("git does not know when the chart came")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", added[-1].decode(), "charts/oarlock"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "charts/oarlock"


def _git(*command: str) -> bytes:
    result = subprocess.run(["git", *command], cwd=ROOT, check=False, capture_output=True)
    if result.returncode != 0:
        raise NoEarlierChart(f"git {command[0]}: {result.stderr.decode().strip()}")
    return result.stdout
