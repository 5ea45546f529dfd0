"""HTTP on port 9400: /status for the operator, /metrics for Prometheus, /healthz for the kubelet.

Read-only and small on purpose: GET and HEAD, no request body is ever read, a slow client loses its connection after
five seconds, and more than a few clients at once are turned away, so that nothing outside can hold the agent up.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any

from oarlock_trainer.agent import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.contract.status import PodStatus

_CLIENT_SECONDS = 5.0
_CLIENTS_AT_ONCE = 16


class StatusServer:
    """The server's thread, which answers until the process ends. `alive`: the supervisor still turns its loop.

    Raises OSError where the port is taken. Port 0 takes any free one; `port` says which.
    """

    def __init__(self, *, port: int, job: str, status: Callable[[], PodStatus], alive: Callable[[], bool]) -> None:
        handler = type(
            "Handler", (_Handler,), {"job": job, "status": staticmethod(status), "alive": staticmethod(alive)}
        )
        self._server = _Server(port, handler)
        self.port: int = self._server.socket.getsockname()[1]
        threading.Thread(target=self._server.serve_forever, name="status-server", daemon=True).start()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, port: int, handler: type[_Handler]) -> None:
        self._places = threading.BoundedSemaphore(_CLIENTS_AT_ONCE)
        dual_stack = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual_stack else socket.AF_INET
        super().__init__(("::" if dual_stack else "", port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that goes away in the middle of an answer is no news."""


class _Handler(BaseHTTPRequestHandler):
    job: str
    status: Callable[[], PodStatus]
    alive: Callable[[], bool]

    timeout = _CLIENT_SECONDS
    server_version = "oarlock"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/status":
            self._answer(200, "application/json", self.status().to_json().encode())
        elif path == "/metrics":
            self._answer(200, metrics.CONTENT_TYPE, metrics.exposition(self.job, self.status()))
        elif path == "/healthz":
            alive = self.alive()
            self._answer(200 if alive else 503, "text/plain", b"ok\n" if alive else b"the supervisor hangs\n")
        else:
            self._answer(404, "text/plain", b"/status, /metrics and /healthz are here\n")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Probes every few seconds are not worth a line."""
