"""The Kubernetes API, as little of it as the operator needs: JSON in, JSON out.

Credentials and TLS are the official client's, and credentials that are over are renewed (credentials.py). The client's typed
models are not used, because they cost 130 MB and a second of start-up, and one odd field of a newer server would fail a
whole list. Every call is counted by verb and code.

No write leaves the process while it may not act (fence.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from msgspec import Raw
from yarl import URL

from oarlock_operator import metrics
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound, refusal
from oarlock_operator.kube.credentials import Credentials, Load
from oarlock_operator.kube.decoding import Page, WatchEvent, decoded, decoded_page, parsed
from oarlock_operator.kube.fence import fenced_requests
from oarlock_operator.kube.server_clock import ServerClock, since_boot
from oarlock_operator.kube.unreadable import Unreadable

Json = dict[str, Any]
T = TypeVar("T")
JSON = "application/json"
CHUNK = 500
PAGE_BYTES = 8 * 2**20
"""A chunk that is longer is asked for again with fewer objects: whoever makes large ones must not fill our memory."""
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PROXIED = "/proxy/"
"""In the path of what a pod answers, by way of the API server: its date is the pod's."""
BY_API_SERVER = "Audit-Id"
"""A header of each answer that an API server gives, and of none that a load balancer before it makes up."""
TIMEOUT_SECONDS = 30.0
WATCH_SLACK_SECONDS = 30.0
CONNECTIONS = 64
CONNECT_SECONDS = 4.0
"""A host that is away is asked again soon: when it is back, that is to be noticed within seconds."""
READ_BUFFER = 2**20
"""Bytes: the events of a whole gang may come at once."""


class Cluster:
    """One connection pool to one API server."""

    def __init__(self, configuration: Configuration, *, load: Load | None = None) -> None:
        """`load` reads the configuration anew, where its credentials are good for a while."""
        self.fence: Callable[[], bool] = lambda: True
        """Whether this process may write now."""
        # One layer retries: the work queue.
        configuration.retries = None
        self._client = ApiClient(configuration)
        self._pool: aiohttp.ClientSession | None = None
        self.configuration = configuration
        self._credentials = Credentials(configuration, load)
        self._certificate = self._credentials.certificate
        self.server_clock = ServerClock()
        self.unreadable = Unreadable()

    async def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            await self._pool.close()
        await self._client.close()

    async def get(self, path: str, **query: str) -> Json:
        """One object. Raises NotFound, ApiError."""
        return await self._call("GET", path, query=query)

    async def list(self, path: str, **query: str) -> list[Json]:
        """All objects of a collection, read in chunks. Raises ApiError."""
        return [item async for page in self._pages(dict, path, unreadable=_refuse, query=query) for item in page.items]

    async def list_of(self, kind: type[T], path: str, **query: str) -> tuple[T, ...]:
        """All objects of a collection, of each only what `kind` names.

        Raises ApiError, also where one of them cannot be read: a list that lacks something is no ground for a decision.
        """
        found: list[T] = []
        async for page in self._pages(kind, path, unreadable=_refuse, query=query):
            found += page.items
        return tuple(found)

    async def pages_of(
        self, kind: type[T], path: str, *, metadata_only: bool = False, **query: str
    ) -> AsyncIterator[Page[T]]:
        """A collection, chunk by chunk, so that a large one never stands in memory as a whole. Raises ApiError.

        Objects that cannot be read are told of and left out. `metadata_only`: the server leaves out everything else.
        """
        accept = METADATA_LIST if metadata_only else JSON
        async for page in self._pages(kind, path, unreadable=self.unreadable.note, query=query, accept=accept):
            yield page

    async def _pages(
        self,
        kind: type[T],
        path: str,
        *,
        unreadable: Callable[[Raw, ApiError], None],
        query: dict[str, str],
        accept: str = JSON,
    ) -> AsyncIterator[Page[T]]:
        limit = CHUNK
        while True:
            target = f"{path}?{urlencode({**query, 'limit': str(limit)})}"
            try:
                answer = await self._send("GET", target, max_bytes=PAGE_BYTES if limit > 1 else None, accept=accept)
            except TooLong:
                limit = max(1, limit // 8)
                continue
            page = decoded_page(kind, answer, f"a list of {path}", unreadable=unreadable)
            yield page
            if not page.metadata.next_chunk:
                return
            query = {**query, "continue": page.metadata.next_chunk}

    async def watch(
        self, path: str, *, timeout_seconds: int, metadata_only: bool = False, **query: str
    ) -> AsyncIterator[WatchEvent]:
        """Events of a collection, until the server ends the stream. Raises ApiError."""
        accept = METADATA_ONLY if metadata_only else JSON
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        target = f"{path}?{urlencode(asked)}"
        rest = b""
        try:
            raw = await self._ask("GET", target, timeout=timeout_seconds + WATCH_SLACK_SECONDS, accept=accept)
            try:
                if raw.status >= 400:
                    raise refusal(raw.status, (await raw.read()).decode(errors="replace"))
                async for chunk in raw.content.iter_any():
                    # Not readline: an event may be longer than its buffer.
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield decoded(line, WatchEvent, f"an event of {path}")
            finally:
                raw.release()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, type(error).__name__, f"watching {path}: {error}") from error

    async def make(self, path: str, body: Json) -> None:
        """As create, for who needs no answer: the server then says little of what it made."""
        target = f"{path}?{urlencode({'fieldValidation': 'Strict'})}"
        await self._send("POST", target, body=body, accept=METADATA_ONLY)

    async def create(self, path: str, body: Json) -> Json:
        """Create in a collection; a field that the server does not know is refused. Raises Conflict for a taken name."""
        return await self._call("POST", path, query={"fieldValidation": "Strict"}, body=body)

    async def replace(self, path: str, body: Json) -> Json:
        """Replace; the body's resourceVersion is the precondition. Raises Conflict, NotFound."""
        return await self._call("PUT", path, body=body)

    async def merge(self, path: str, patch: Json) -> Json:
        """Merge-patch; a uid or resourceVersion in the patch's metadata is a precondition. Raises Conflict, NotFound."""
        return await self._call("PATCH", path, body=patch, content_type="application/merge-patch+json")

    async def delete(self, path: str, *, uid: str, version: str = "", grace_seconds: int | None = None) -> None:
        """Delete the very object with this uid; one that is gone or is another object counts as done.

        With `version`, its resourceVersion, one that has changed since is left as it is.
        """
        known = {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
        body: Json = {"preconditions": known, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._send("DELETE", path, body=body, accept=METADATA_ONLY)
        except (NotFound, Conflict):
            return

    async def text(self, path: str, *, timeout: float, max_bytes: int) -> str:  # noqa: ASYNC109 - the transport's own limit
        """A plain answer, as from a pod's proxy. Raises ApiError."""
        return (await self._send("GET", path, timeout=timeout, max_bytes=max_bytes)).decode(errors="replace")

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
    ) -> Json:
        target = f"{path}?{urlencode(query)}" if query else path
        answer = await self._send(method, target, body=body, content_type=content_type)
        return parsed(answer, f"the answer to {method} {path}")

    async def _send(
        self,
        method: str,
        target: str,
        *,
        body: Json | None = None,
        content_type: str = JSON,
        timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109
        max_bytes: int | None = None,
        accept: str = JSON,
    ) -> bytes:
        """The answer's bytes. Raises TooLong, ApiError."""
        try:
            raw = await self._ask(method, target, body=body, content_type=content_type, timeout=timeout, accept=accept)
            try:
                data = await (read_at_most(raw.content, max_bytes) if max_bytes else raw.read())
            finally:
                raw.release()
        except TooLong:
            metrics.api_call(method, raw.status)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            metrics.api_call(method, 0)
            raise ApiError(0, type(error).__name__, f"{method} {target}: {error}") from error
        metrics.api_call(method, raw.status)
        if raw.status < 400:
            return data
        raise refusal(raw.status, data.decode(errors="replace"))

    async def _ask(self, method: str, target: str, **given: Any) -> aiohttp.ClientResponse:
        """The answer, asked for once more where the credentials were over and there are others."""
        renewals = self._credentials.renewals
        answer = await self._ask_once(method, target, **given)
        # By way of the proxy a 401 may be a pod's own.
        if answer.status != 401 or PROXIED in target or not await self._credentials.renewed_since(renewals):
            return answer
        answer.release()
        if self._certificate != self._credentials.certificate:
            await self._begin_anew()
        return await self._ask_once(method, target, **given)

    async def _begin_anew(self) -> None:
        """Connections with the certificate that is good now. Watches on the old ones end, and begin where they were."""
        client, pool = self._client, self._pool
        self._client, self._pool = ApiClient(self.configuration), None
        self._certificate = self._credentials.certificate
        if pool is not None:
            await pool.close()
        await client.close()

    async def _ask_once(
        self,
        method: str,
        target: str,
        *,
        body: Json | None = None,
        content_type: str = JSON,
        timeout: float,  # noqa: ASYNC109
        accept: str = JSON,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": "oarlock-operator"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], target, method, body)
        sent = since_boot()
        answer = await self._session().request(
            method,
            URL(f"{self.configuration.host}{target}", encoded=True),
            headers=headers,
            data=json.dumps(body).encode() if body is not None else None,
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS),
            proxy=self.configuration.proxy,
            proxy_headers=self.configuration.proxy_headers,
            server_hostname=self.configuration.tls_server_name,
            allow_redirects=False,
        )
        if PROXIED not in target and answer.status < 500 and BY_API_SERVER in answer.headers:
            self.server_clock.heard(answer.headers.get("Date"), seconds=since_boot() - sent)
        return answer

    def _may_act(self) -> bool:
        return self.fence()

    def _session(self) -> aiohttp.ClientSession:
        """Our own, on the client's TLS context: the client's looks for a .netrc in a thread at every request."""
        if self._pool is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._client.rest_client.ssl_context)
            # One host, asked without a break: compressing for it would cost both sides more than it saves.
            self._pool = aiohttp.ClientSession(
                connector=connector,
                headers={"Accept-Encoding": "identity"},
                read_bufsize=READ_BUFFER,
                request_class=fenced_requests(self._may_act, base=URL(self.configuration.host).path.rstrip("/")),
            )
        return self._pool


def _refuse(_: Raw, error: ApiError) -> None:
    raise error


class TooLong(aiohttp.ClientPayloadError):
    """An answer has more bytes than were asked for."""


async def read_at_most(content: aiohttp.StreamReader, limit: int) -> bytes:
    """The whole of an answer of at most `limit` bytes. Raises TooLong, which is an aiohttp.ClientPayloadError."""
    data = bytearray()
    async for chunk in content.iter_any():
        data += chunk
        if len(data) > limit:
            raise TooLong(f"longer than {limit} bytes")
    return bytes(data)
