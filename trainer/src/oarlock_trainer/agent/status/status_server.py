"""HTTP on port 9400: /status for the operator, /metrics for Prometheus, /healthz for the kubelet, /webhook for a trainer.

Whoever asks from within the pod, as people do by a port-forward, gets figures and pictures, too (from_within.py).

Small on purpose, so that nothing outside can hold the agent up: a client has five seconds for everything, and gives way to
a new one where too many are connected (connection_limit.py). Nothing is taken from outside either: only /webhook has a body
that is read, for a trainer of the job's own, from this very network namespace, and of 64 KiB at most.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.gang_key import REFUSED, asked_at
from oarlock_api.contract.reads import WITHIN_ONLY
from oarlock_api.contract.requests import MEANT
from oarlock_api.contract.rounds import SurgePod, ended_of, surge_of
from oarlock_trainer.agent.status import metrics
from oarlock_trainer.agent.status.access import StatusAccess, is_from_here, is_here, is_led_here
from oarlock_trainer.agent.status.connection_limit import ConnectionLimit
from oarlock_trainer.agent.status.from_within import FromWithin
from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox, Reception
from oarlock_trainer.agent.trainer_webhooks.payloads import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.contract.requests import Answered, Request
    from oarlock_api.contract.status import PodStatus
    from oarlock_trainer.agent.ring.parts_server import PartsServer

_CLIENT_SECONDS = 5.0
"""From its connection to the end of its answer."""
_READER_SECONDS = 60.0
"""The same for a picture, which may go over a long line."""
_CLIENTS_AT_ONCE = 16
_MOST_BYTES = 2 * MAX_BYTES
"""A request's line, its headers and its body."""
_UNREAD_BYTES = 1 << 20
"""So much of what a client still sends is taken after its answer."""
_ANSWERS = {Reception.REFUSED: 400, Reception.LOST: 503}


class StatusServer:
    """The server's thread, which answers until the process ends. `alive`: the supervisor still turns its loop.

    `inbox` is where a trainer's webhooks go, None where there is no such trainer; `access` says who may read /status,
    and `ask` takes what they ask for with it, and says how far that is: the same answer tells it. `ended` takes the pods
    whose end the operator says that it has seen, `surge` the surge pods that it says it makes, and when it did.
    `within` has what is told to the pod itself alone, `parts` what is handed to the gang's other agents (ring/).
    Raises OSError where the port is taken. Port 0 takes any free one; `port` says which.
    """

    def __init__(
        self,
        *,
        port: int,
        job: str,
        status: Callable[[], PodStatus],
        alive: Callable[[], bool],
        inbox: Inbox | None = None,
        access: StatusAccess | None = None,
        ask: Callable[[Request], Answered | None] = lambda _: None,
        ended: Callable[[tuple[tuple[int, int], ...]], None] = lambda _: None,
        surge: Callable[[tuple[SurgePod, ...], int], None] = lambda *_: None,
        within: FromWithin | None = None,
        parts: PartsServer | None = None,
    ) -> None:
        own = {"job": job, "status": staticmethod(status), "alive": staticmethod(alive), "ask": staticmethod(ask)}
        own["inbox"], own["ended"], own["surge"] = inbox, staticmethod(ended), staticmethod(surge)
        own["within"] = within
        own["parts"] = parts
        own["access"] = access or StatusAccess()
        handler = type("Handler", (_Handler,), own)
        self._server = _Server(port, handler)
        self.port: int = self._server.socket.getsockname()[1]
        # Nobody ends it before the process does: it need not look around twice a second whether to end.
        forever = {"poll_interval": 3600.0}
        threading.Thread(target=self._server.serve_forever, kwargs=forever, name="status-server", daemon=True).start()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, port: int, handler: type[_Handler]) -> None:
        self._connections: ConnectionLimit[socket.socket] = ConnectionLimit(_CLIENTS_AT_ONCE)
        dual_stack = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual_stack else socket.AF_INET
        super().__init__(("::" if dual_stack else "", port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if loser := self._connections.admit(request, client_address[0]):
            with contextlib.suppress(OSError):  # wakes its thread, which closes it
                loser.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.release(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that goes away in the middle of an answer is no news."""


class _Client(io.RawIOBase):
    """A connection, for as long as its client's time lasts and for as much as a request may have."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + _CLIENT_SECONDS
        self._left = _MOST_BYTES

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise OSError("the request is too long")
        self._hurry()
        received = self._connection.recv_into(buffer)
        self._left -= received
        return received

    def write(self, data: Any) -> int:
        self._hurry()
        self._connection.sendall(data)  # its time limit is for the whole
        return len(data)

    def extend(self, seconds: float) -> None:
        """Give the client so long from now on."""
        self._until = time.monotonic() + seconds

    def drain(self) -> None:
        """Take what still comes: a connection that is closed over unread bytes loses the answer with them."""
        self._connection.shutdown(socket.SHUT_WR)
        left = _UNREAD_BYTES
        while left > 0:
            self._hurry()
            if not (chunk := self._connection.recv(65536)):
                return
            left -= len(chunk)

    def _hurry(self) -> None:
        if (left := self._until - time.monotonic()) <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


class _Handler(BaseHTTPRequestHandler):
    job: str
    status: Callable[[], PodStatus]
    alive: Callable[[], bool]
    inbox: Inbox | None
    access: StatusAccess
    ask: Callable[[Request], Answered | None]
    ended: Callable[[tuple[tuple[int, int], ...]], None]
    surge: Callable[[tuple[SurgePod, ...], int], None]
    within: FromWithin | None
    parts: PartsServer | None

    command = ""
    """Until a request's first line was understood."""
    server_version = "oarlock"
    sys_version = ""

    def setup(self) -> None:
        self.connection = self.request
        self._client = _Client(self.connection)
        self.rfile = io.BufferedReader(self._client)
        self.wfile = io.BufferedWriter(self._client)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/status":
            status, host, asked = self.status(), self.client_address[0], self.headers.get("Host", "")
            request = self.access.request(self.path, host, asked, meant=MEANT in self.headers)
            self._hear_of_pods()
            if request and (known := self.ask(request)):
                status = replace(status, request=known)
            said = self.access.answer(self.path, host, asked, status.to_json())
            if said is None:
                self._answer(403, "text/plain", REFUSED.encode())
            else:
                self._answer(200, "application/json", said.encode())
        elif path == "/metrics" and is_led_here(self.client_address[0], self.headers.get("Host", "")):
            self._answer(403, "text/plain", b"ask by the pod's address, or by localhost\n")
        elif path == "/metrics":
            reports = self.inbox.counts if self.inbox else {}
            self._answer(200, metrics.CONTENT_TYPE, metrics.exposition(self.job, self.status(), reports=reports))
        elif path == "/healthz":
            alive = self.alive()
            self._answer(200 if alive else 503, "text/plain", b"ok\n" if alive else b"the supervisor hangs\n")
        elif self.within and FromWithin.has(path):
            self._tell_the_pod(self.within)
        elif self.parts and self.parts.has(path):
            found = self.parts.answer(self.path)
            self._answer(found.code, found.content_type, b"".join(found.pieces))
        else:
            self._answer(404, "text/plain", b"/status, /metrics and /healthz are here\n")

    def _hear_of_pods(self) -> None:
        """Take in what the operator says of the gang's other pods with its question."""
        if pods := ended_of(self.access.ended(self.path)):
            self.ended(pods)
        if (made := surge_of(self.access.surge(self.path))) is not None:
            self.surge(made, asked_at(self.path))

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path.partition("?")[0] != "/webhook" or self.inbox is None:
            self._answer(501, "text/plain", b"nothing is taken here\n")
        elif not is_here(self.client_address[0]):
            self._answer(403, "text/plain", b"only from this pod itself\n")
        elif not (length.isascii() and length.isdecimal()):
            self._answer(411, "text/plain", b"say the body's length\n")
        elif int(length) > MAX_BYTES:
            self._answer(413, "text/plain", b"64 KiB at most\n")
        else:
            body = self.rfile.read(int(length))
            reception = self.inbox.put(body, self.headers.get("Content-Type", ""))
            self._answer(_ANSWERS.get(reception, 200), "text/plain", f"{reception}\n".encode())

    def _tell_the_pod(self, within: FromWithin) -> None:
        if not is_from_here(self.client_address[0], self.headers.get("Host", "")):
            self._answer(403, "text/plain", WITHIN_ONLY.encode())
            return
        self._client.extend(_READER_SECONDS)
        with within.answer(self.path) as found:
            self._head(found.code, found.content_type, found.length)
            if self.command != "HEAD":
                for piece in found.pieces:
                    self.wfile.write(piece)

    def finish(self) -> None:
        """A request that can be answered was read whole, unless it has a body or is no request."""
        with contextlib.suppress(OSError):
            self.wfile.flush()
            if self.command not in ("GET", "HEAD"):
                self._client.drain()

    def _head(self, code: int, content_type: str, length: int) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _answer(self, code: int, content_type: str, body: bytes) -> None:
        self._head(code, content_type, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Probes every few seconds are not worth a line."""
