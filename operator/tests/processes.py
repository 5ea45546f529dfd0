"""The operator as a process of its own, against a real API server, and hands that play kubelet there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from oarlock_local import patience
from oarlock_local.api import credentials

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

ROOT = Path(__file__).parents[2]


class ApiRefused(Exception):  # noqa: N818
    """The API server said no; its words are the message."""


class Api:
    """The API server by plain HTTPS, as the cluster's administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        server, context = credentials(kubeconfig)
        # One connection for all: a handshake with certificates of both sides costs the server more than an answer.
        self._http = httpx.Client(base_url=server, verify=context, timeout=patience.SECONDS, trust_env=False)

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """One request; raises httpx.HTTPStatusError, and ApiRefused where an object does not pass admission (422)."""
        try:
            return json.loads(
                self.send(method, path, json.dumps(body).encode() if body is not None else None, kind=kind)
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 422:
                raise ApiRefused(error.response.json()["message"]) from None
            raise

    def send(self, method: str, path: str, data: bytes | None = None, *, kind: str = "application/json") -> bytes:
        """One request as it is; raises httpx.HTTPStatusError."""
        answer = self._http.request(method, path, content=data, headers={"Content-Type": kind})
        return answer.raise_for_status().content

    def find(self, path: str) -> Any:
        """An object, or None; a CRD that was just made answers 429 for a moment."""
        try:
            return self.call("GET", path)
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (404, 429):
                return None
            raise

    def merge(self, path: str, body: Any) -> Any:
        """A merge patch."""
        return self.call("PATCH", path, body, kind="application/merge-patch+json")


def api_with_crd(control_plane: Cluster) -> Api:
    """The API once it serves TrainingJobs."""
    from oarlock_local.crd import apply_crd  # noqa: PLC0415 - only for those that need a cluster

    apply_crd(control_plane, ROOT / "crds/trainingjobs.yaml")
    return Api(control_plane.kubeconfig)


LOGS: list[Path] = []
"""Of the operators that run now: a test that fails shows their last words."""


@contextmanager
def operator(kubeconfig: Path, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run oarlock-operator for the length of the block; it must still live at its end, unless it was killed.

    As in a pod of the chart it asks pods directly: it has no right to the API server's proxy.
    """
    command = [sys.executable, "-m", "oarlock_operator", "--kubeconfig", str(kubeconfig)]
    command += ["--port", "0", "--pod-access", "direct", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OARLOCK_")}
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    LOGS.append(log)
    try:
        yield process
    finally:
        LOGS.remove(log)
        alive = process.poll() is None
        process.send_signal(signal.SIGTERM)
        try:
            # One that is killed keeps its Lease, and the next one waits for it.
            process.wait(timeout=patience.SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    assert alive or process.returncode == -signal.SIGKILL, f"the operator ended by itself:\n{log.read_text()[-3000:]}"


class Resident:
    """An operator that is there for one test after the other, until one wants operators of its own."""

    def __init__(self, kubeconfig: Path, log: Path, *arguments: str) -> None:
        self._begin = lambda: operator(kubeconfig, log, *arguments)
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have it run."""
        if self._process is None:
            self._process = self._running.enter_context(self._begin())

    def stop(self) -> None:
        """End it. Fails where it has ended by itself."""
        self._process = None
        self._running.close()

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None
