"""A gang system's program, as long as the block lives; what it wrote last is told where it ends or is waited for in vain."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from oarlock_local import patience
from oarlock_local.cluster import Cluster
from oarlock_local.processes import start_logged, stop


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Program]:
    """Run a program that writes to a log file for the length of the block."""
    process = start_logged(command, log)
    try:
        yield Program(process, log)
    finally:
        stop(process)


def serve(cluster: Cluster, kinds: Sequence[dict[str, Any]]) -> None:
    """Have the cluster serve these kinds; it does when this returns."""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": kinds})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)
    names = [f"crd/{kind['metadata']['name']}" for kind in kinds]
    cluster.kubectl("wait", "--for=condition=Established", *names, patience.KUBECTL)


def answers(url: str) -> bool:
    """Whether somebody on this machine says there that all is well."""
    try:
        # Their certificates are their own.
        return httpx.get(url, timeout=5, trust_env=False, verify=False).is_success  # noqa: S501
    except httpx.TransportError:
        return False


@dataclass(frozen=True, slots=True)
class Program:
    """A process and what it writes."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, what: str, until: Callable[[], bool]) -> None:
        """Return as soon as a condition holds; it fails where the program ends before that."""
        deadline = time.monotonic() + patience.SECONDS
        while not until():
            last = f"{self.log.stem}:\n{self.log.read_text()[-3000:]}"
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {what}; {last}"
            assert time.monotonic() < deadline, f"waited in vain for {what}; {last}"
            time.sleep(0.1)
