"""The few requests that this package itself makes to an API server, by a kubeconfig that it wrote."""

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from oarlock_local.errors import ClusterError

_CONFLICT = 409
_NOT_THERE = (404, 429, 503)
"""No such object; and what a kind answers that was just defined, or that is not served yet."""


def credentials(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """The API server's address, and what proves who is who, from a kubeconfig of ours."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    # Python's ssl reads client certificates from files only.
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(base64.b64decode(user["client-certificate-data"]))
        pem.write(base64.b64decode(user["client-key-data"]))
        pem.flush()
        context.load_cert_chain(pem.name)
    return cluster["server"], context


class ApiServer:
    """A connection to an API server, as the kubeconfig's user."""

    def __init__(self, kubeconfig: Path) -> None:
        server, context = credentials(kubeconfig)
        # A proxy of the environment cannot reach this machine's clusters: trust_env off.
        self._http = httpx.Client(base_url=server, verify=context, timeout=10, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the server answers that it is ready for everything."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def get(self, path: str) -> Any:
        """Read an object or a list; raises ClusterError with the server's words."""
        return self._answer(self._send("GET", path))

    def find(self, path: str) -> Any | None:
        """Read an object or a list, None where there is none now; raises ClusterError with the server's words."""
        response = self._send("GET", path)
        return None if response.status_code in _NOT_THERE else self._answer(response)

    def create(self, path: str, body: Any) -> None:
        """Create an object; one that is there already stays as it is."""
        response = self._send("POST", path, json=body)
        if response.status_code != _CONFLICT:
            self._answer(response)

    def merge(self, path: str, patch: Any) -> None:
        """Change an object by a merge patch."""
        headers = {"Content-Type": "application/merge-patch+json"}
        self._answer(self._send("PATCH", path, json=patch, headers=headers))

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is fine."""
        response = self._send("DELETE", path)
        if response.status_code not in _NOT_THERE:
            self._answer(response)

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **content)
        except httpx.TransportError as error:
            raise ClusterError(f"the API server at {self._http.base_url} does not answer: {error!r}") from error

    def _answer(self, response: httpx.Response) -> Any:
        if response.is_success:
            return response.json()
        try:
            message = response.json()["message"]
        except (ValueError, KeyError):
            message = response.text
        raise ClusterError(f"{response.request.method} {response.request.url}: {response.status_code}: {message}")
