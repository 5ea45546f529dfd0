"""Requests to a cluster, made as the caller: by a kubeconfig as kubectl finds it, or by a pod's own account.

Kubeconfigs that are plain are read here, the others by the official client (docs/decisions/0045); bodies stay JSON, because a
status of another release must be readable (docs/decisions/0048). A Cluster may be used by several threads.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from oarlock.checked_name import checked_name
from oarlock.errors import (
    ForbiddenError,
    NoClusterError,
    NotFoundError,
    OarlockError,
    RefusedError,
    UnknownCallerError,
    last_words,
)
from oarlock.names import is_name
from oarlock_api.contract.names import API_VERSION, PLURAL

if TYPE_CHECKING:
    from websocket import WebSocket

    from oarlock.access import Access

Json = dict[str, Any]
MOST_BYTES = 256 << 20
"""Of one answer. A page of a list is 500 objects, of which etcd takes 1.5 MiB each at most; they have a few KiB."""
CONNECT_SECONDS, READ_SECONDS = 5.0, 30.0
MAX_LINE = 1024 * 1024
"""Bytes. A longer line comes in pieces of about that: a progress bar may never end its own."""
MERGE = "application/merge-patch+json"
_OBJECT = re.compile(r"/apis/[^/?]+/[^/?]+/namespaces/([^/?]+)/[a-z]+/([^/?]+)")


class Cluster:
    """A cluster, and the namespace that is meant where none is named."""

    def __init__(self, access: Access, *, namespace: str, where: str) -> None:
        """`where` is what errors call this cluster. See `connect`."""
        self._access = access
        self.namespace = namespace
        self.where = where

    def get(self, path: str, **query: str | None) -> Any:
        """GET of a path, as JSON. Raises OarlockError."""
        return self._json("GET", path, query)

    def create(self, path: str, body: Json, **query: str | None) -> Json:
        """POST. Raises OarlockError."""
        made: Json = self._json("POST", path, query, body)
        return made

    def apply(self, path: str, body: Json, **query: str | None) -> Json:
        """Server-side apply, as `kubectl apply --server-side` does it. Raises OarlockError."""
        query = {"fieldManager": "oarlock", "force": "true", **query}
        made: Json = self._json("PATCH", path, query, body, "application/apply-patch+yaml")
        return made

    def merge(self, path: str, patch: Json) -> Json:
        """Change an object by a merge patch. Raises OarlockError."""
        changed: Json = self._json("PATCH", path, {}, patch, MERGE)
        return changed

    def delete(self, path: str, preconditions: Mapping[str, str]) -> None:
        """DELETE of one object in a namespace, as long as its metadata has these values; its dependents go after it.

        Raises OarlockError; RefusedError for any other path, before anything is sent: a collection would be deleted whole.
        """
        parts = _OBJECT.fullmatch(path)
        if not parts or not all(is_name(part) for part in parts.groups()):
            raise RefusedError(f"{path} is no path of one object: nothing was deleted")
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        self._json("DELETE", path, {}, {**body, "preconditions": dict(preconditions)})

    def items(self, path: str, **query: str | None) -> list[Json]:
        """All objects of a list, page by page. Raises OarlockError."""
        found: list[Json] = []
        after: str | None = None
        while True:
            page = self.get(path, limit="500", **{"continue": after}, **query)
            found += page.get("items") or []
            after = (page.get("metadata") or {}).get("continue")
            if not after:
                return found

    @contextmanager
    def lines(self, path: str, quiet: float | None = None, /, **query: str | None) -> Iterator[Lines]:
        """The lines of an answer as they come, cut at MAX_LINE; the last may be torn. Raises OarlockError.

        `quiet`: seconds without a byte after which the connection counts as lost; None where silence may last for ever.
        """
        with self._answer("GET", path, query, stream=True, quiet=quiet) as response:
            yield Lines(response)

    def web_socket(self, path: str, *, protocol: str, seconds: float, **query: str | None) -> WebSocket:
        """A WebSocket to a path, on which nothing takes longer than so many seconds. Raises OarlockError."""
        import websocket  # noqa: PLC0415 - few need it

        from oarlock.web_socket import connect as open_socket  # noqa: PLC0415

        url, headers = self._address(path, query)
        headers["Accept"] = "*/*"  # it answers in no format of the API, and who wants one gets 406
        try:
            return open_socket(self._access.pool, url, headers, protocol=protocol, seconds=seconds)
        except websocket.WebSocketBadStatusException as error:
            body = error.resp_body or b""
            raise _refusal(error.status_code, body, path=path, where=self.where) from error
        except (websocket.WebSocketException, OSError) as error:
            raise NoClusterError(f"{self.where} opens no connection to {path}: {last_words(error)}") from error

    def _json(self, method: str, path: str, query: dict[str, str | None], body: Any = None, kind: str = "") -> Any:
        with self._answer(method, path, query, body, kind) as response:
            said = self._body(response)
        try:
            found = json.loads(said or b"{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise NoClusterError(
                f"{self.where} answered {path} with no JSON object, but {_begin(said)!r}: does a proxy stand before it?"
            )
        return found

    def _body(self, response: Any) -> bytes:
        """The whole body of an answer. Raises NoClusterError where it breaks off, RefusedError where it has no end."""
        import urllib3  # noqa: PLC0415 - as below

        try:
            data: bytes = response.read(MOST_BYTES + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoClusterError(f"the answer of {self.where} broke off: {last_words(error)}") from error
        if len(data) > MOST_BYTES:
            response.close()
            raise RefusedError(
                f"the answer of {self.where} is longer than {MOST_BYTES >> 20} MiB: ask for less at once"
            )
        return data

    def _address(self, path: str, query: Mapping[str, str | None]) -> tuple[str, dict[str, str]]:
        """The URL of a request, and its headers with the caller's credentials."""
        given = {name: value for name, value in query.items() if value}
        url = f"{self._access.host}{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": "application/json", "User-Agent": "oarlock"}
        try:
            self._access.authorize(headers)
        except Exception as error:  # who refreshes credentials raises whatever its libraries raise
            raise NoClusterError(
                f"the credentials for {self.where} cannot be refreshed: {last_words(error)}"
            ) from error
        return url, headers

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: dict[str, str | None],
        body: Any = None,
        kind: str = "",
        *,
        stream: bool = False,
        quiet: float | None = None,
    ) -> Iterator[Any]:
        import urllib3  # noqa: PLC0415 - as below: only who asks a cluster pays

        url, headers = self._address(path, query)
        if body is not None:
            headers["Content-Type"] = kind or "application/json"
        try:
            response = self._access.pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=quiet if stream else READ_SECONDS),
                retries=urllib3.Retry(connect=1, read=0, redirect=0, status=0),
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoClusterError(
                f"{self.where} does not answer: {last_words(error)}; is it up, and is this its kubeconfig?"
            ) from error
        try:
            if response.status >= 400:
                raise _refusal(response.status, self._body(response), path=path, where=self.where)
            yield response
        finally:
            if stream:
                response.close()
            response.release_conn()


def connect(*, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> Cluster:
    """The cluster that kubectl would ask: --kubeconfig, else $KUBECONFIG, else ~/.kube/config, else this pod's own account.

    Raises NoClusterError where there is none of them, or it is none.
    """
    from oarlock.access import ACCOUNT, plain_context  # noqa: PLC0415 - 0.1 s, which --help and completion save

    files = kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    there = [file for file in files.split(os.pathsep) if file and Path(file).exists()]
    if not there and not kubeconfig and not context and (ACCOUNT / "token").exists():
        from oarlock.official import of_this_pod  # noqa: PLC0415

        found = of_this_pod()
        return Cluster(found.access, namespace=namespace or found.namespace, where="this pod's cluster")
    if not there:
        raise NoClusterError(f"there is no kubeconfig at {files}: name one with --kubeconfig or in $KUBECONFIG")
    chosen = plain_context(Path(there[0]), context) if len(there) == 1 else None
    if chosen is None:
        from oarlock.official import context_of  # noqa: PLC0415 - 0.3 s, which most kubeconfigs save

        chosen = context_of(there, context)
    where = f"the cluster of the context {chosen.name} ({chosen.access.host})"
    return Cluster(chosen.access, namespace=namespace or chosen.namespace, where=where)


def jobs_path(namespace: str | None, name: str | None = None) -> str:
    """The path of a namespace's TrainingJobs, or of all; or of one. Raises RefusedError for what can be no name."""
    inside = f"/namespaces/{checked_name(namespace, 'namespace')}" if namespace is not None else ""
    return f"/apis/{API_VERSION}{inside}/{PLURAL}" + (f"/{checked_name(name, 'job')}" if name is not None else "")


class Lines:
    """Lines of an answer that goes on. Another thread may end it."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        import urllib3  # noqa: PLC0415

        rest = bytearray()
        try:
            while chunk := self._response.read1(65536):
                end, *others = chunk.split(b"\n")
                rest += end
                for other in others:
                    yield bytes(rest)
                    rest = bytearray(other)
                if len(rest) >= MAX_LINE:
                    yield bytes(rest)
                    rest.clear()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if self._ended:
                return
            raise NoClusterError(f"the answer broke off: {last_words(error)}") from error
        if rest and not self._ended:
            yield bytes(rest)

    def end(self) -> None:
        """Have the one who reads find the end now, without the line that has not come whole."""
        self._ended = True
        self._response.shutdown()


def _refusal(status: int, body: bytes, *, path: str, where: str) -> OarlockError:
    """What an answer of 400 and above means."""
    try:
        said = str(json.loads(body).get("message") or "")
    except (ValueError, AttributeError, RecursionError):
        said = body.decode(errors="replace").strip()[:300]
    said = " ".join(said.split())
    if status == 401:
        return UnknownCallerError(f"{where} does not know who asks: log in again, or name another --context")
    if status == 403:
        return ForbiddenError(f"{said or 'it is forbidden'}: ask for that right, or name another namespace")
    if status == 404:
        if said in ("", "404 page not found") or "could not find the requested resource" in said:
            return NotFoundError(f"{where} does not have {path.partition('?')[0]}: is Oarlock installed there?")
        if "/namespaces/" not in path:
            return NotFoundError(said + (": see `oarlock nodes`" if path.startswith("/api/v1/nodes") else ""))
        return NotFoundError(f"{said}: see `oarlock ls -A`")
    return RefusedError(said or f"{where} answered {status}", status)


def _begin(said: bytes) -> str:
    return " ".join(said[:60].decode(errors="replace").split())
