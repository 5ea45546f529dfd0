"""The operator as a process of its own, against a real API server, and hands that play kubelet there."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from oarlock_local import patience
from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from oarlock_local.cluster import Cluster

Found = TypeVar("Found")
ROOT = Path(__file__).parents[2]


def wait_for(what: str, look: Callable[[], Found | None]) -> Found:
    """What `look` finds, as soon as it finds something true. It asks an API server: not hundreds of times a second."""
    return eventually(look, what, every=0.05)


class ApiRefused(Exception):  # noqa: N818
    """The API server said no; its words are the message."""


class Api:
    """The API server by plain HTTPS, as the cluster's administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        import base64  # noqa: PLC0415
        import tempfile  # noqa: PLC0415

        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]

        def data(group: dict[str, str], name: str) -> str:
            return (
                base64.b64decode(group[f"{name}-data"]).decode()
                if f"{name}-data" in group
                else Path(group[name]).read_text()
            )

        self._context = ssl.create_default_context(cadata=data(cluster, "certificate-authority"))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(data(user, "client-certificate") + "\n" + data(user, "client-key"))
            pair.flush()
            self._context.load_cert_chain(pair.name)

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """One request; raises urllib.error.HTTPError, and ApiRefused where an object does not pass admission (422)."""
        try:
            return json.loads(
                self.send(method, path, json.dumps(body).encode() if body is not None else None, kind=kind)
            )
        except urllib.error.HTTPError as error:
            if error.code == 422:
                raise ApiRefused(json.load(error)["message"]) from None
            raise

    def send(self, method: str, path: str, data: bytes | None = None, *, kind: str = "application/json") -> bytes:
        """One request as it is; raises urllib.error.HTTPError."""
        request = urllib.request.Request(  # noqa: S310 - always https, from the kubeconfig
            self._server + path, data=data, method=method, headers={"Content-Type": kind}
        )
        with urllib.request.urlopen(request, context=self._context, timeout=patience.SECONDS) as answer:  # noqa: S310
            found: bytes = answer.read()
            return found

    def find(self, path: str) -> Any:
        """An object, or None; a CRD that was just made answers 429 for a moment."""
        try:
            return self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code in (404, 429):
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
    try:
        yield process
    finally:
        alive = process.poll() is None
        process.send_signal(signal.SIGTERM)
        try:
            # One that is killed keeps its Lease, and the next one waits for it.
            process.wait(timeout=patience.SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    assert alive or process.returncode == -signal.SIGKILL, f"the operator ended by itself:\n{log.read_text()[-3000:]}"
