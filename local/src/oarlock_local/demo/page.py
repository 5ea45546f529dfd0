"""The page of the demo's jobs: `oarlock web` on this machine, beside the cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from oarlock_local.cluster import Cluster
from oarlock_local.processes import die_with_parent, stop


@contextmanager
def page(cluster: Cluster, output: Path) -> Iterator[str]:
    """Serve the page for the length of the block, and say its link, which has a key that lets one in.

    `output`: the folder behind the jobs' claim. No link where it does not start, and page.log beside the cluster's logs says
    why: a demo holds without it.
    """
    program = str(Path(sys.prefix) / "bin/oarlock")
    with (cluster.logs / "page.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "web", "--kubeconfig", str(cluster.kubeconfig), "--path", str(output), "--no-open", "-A"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - as in processes.py
        )
    with cast("IO[bytes]", process.stdout) as said:
        try:
            yield said.readline().decode().strip()
        finally:
            stop(process)
