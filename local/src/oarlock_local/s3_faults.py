"""What goes wrong between a job and its S3 service, on purpose: a proxy before a real one.

    with Faults(server.endpoint) as faults:
        faults.plan(SlowDown(), times=3, method="GET")
        boto3.client("s3", endpoint_url=faults.endpoint, ...)

Requests pass as they came, the Host header too, so that their signatures stay valid. A plan takes the requests that it
fits, in order, until it is used up; the others pass.
"""

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server"})
"""What BaseHTTPRequestHandler sends by itself, or what is between two neighbours only."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The service answers with an error instead of doing what it is asked for."""

    status: int
    code: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer's body ends after so many bytes: by a reset, or by an orderly end that comes too early."""

    after: int
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Short:
    """The answer has fewer bytes than were asked for, and its Content-Length says so."""

    length: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The service does what it is asked for, and the connection breaks before it can say so."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing comes for so many seconds, or until the proxy is closed; then all goes on."""

    seconds: float


Fault = Refusal | Cut | Short | Lost | Stall

SLOW_DOWN = Refusal(503, "SlowDown")
EXPIRED_TOKEN = Refusal(403, "ExpiredToken")
ACCESS_DENIED = Refusal(403, "AccessDenied")


class Request(NamedTuple):
    """One request that came: its method, and its path with the query."""

    method: str
    path: str
    range: str


class _Plan:
    def __init__(self, fault: Fault, *, method: str, path: str, times: int, after: int) -> None:
        self.fault = fault
        self.method = method
        self.path = path
        self.times = times
        self.after = after

    def takes(self, request: Request) -> bool:
        fits = self.method in {"", request.method} and self.path in request.path
        if not (fits and self.times):
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


class Faults:
    """A proxy on a loopback address before the service at `upstream` (http://address:port)."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream.removeprefix("http://")
        self._plans: list[_Plan] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.requests: list[Request] = []

    @property
    def endpoint(self) -> str:
        """Where clients find the proxy."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def plan(self, fault: Fault, *, method: str = "", path: str = "", times: int = 1, after: int = 0) -> None:
        """Do that to the next `times` requests of that method with `path` in their path, once `after` have passed."""
        with self._lock:
            self._plans.append(_Plan(fault, method=method, path=path, times=times, after=after))

    def take(self, request: Request) -> Fault | None:
        """Note a request that came, and say what shall go wrong with it."""
        with self._lock:
            self.requests.append(request)
            return next((plan.fault for plan in self._plans if plan.takes(request)), None)

    def forget(self) -> None:
        """Drop the plans and the requests noted so far."""
        with self._lock:
            self._plans.clear()
            self.requests.clear()

    def stall(self, seconds: float) -> None:
        """Wait that long, unless the proxy is closed before."""
        self._closing.wait(seconds)

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the service itself."""
        return http.client.HTTPConnection(self._upstream, timeout=60)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], faults: Faults) -> None:
        super().__init__(address, _Handler)
        self.faults = faults

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._service = self.server.faults.connect()

    def finish(self) -> None:
        self._service.close()
        with contextlib.suppress(OSError):  # the connection may be reset by now
            super().finish()

    def log_message(self, *_: Any) -> None:
        """Tests look at `requests`."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.faults.take(Request(self.command, self.path, self.headers.get("Range", "")))
        match fault:
            case Refusal():
                self._refuse(fault)
                return
            case Stall():
                self.server.faults.stall(fault.seconds)
        answer, content = self._ask(body)
        match fault:
            case Lost():
                self._break_off(reset=True)
            case Cut():
                self._head(answer, len(content))
                self.wfile.write(content[: fault.after])
                self._break_off(reset=fault.reset)
            case Short():
                self._head(answer, fault.length)
                self.wfile.write(content[: fault.length])
            case _:
                # The answer to HEAD tells a length and has no body.
                self._head(answer, int(answer.headers.get("Content-Length") or len(content)))
                self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - so are they looked up

    def _ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        self._service.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            # Whoever asked for a 100 has it by now: from us.
            if name.lower() not in {"connection", "expect"}:
                self._service.putheader(name, value)
        self._service.endheaders(body or None)
        answer = self._service.getresponse()
        return answer, answer.read()

    def _head(self, answer: http.client.HTTPResponse, length: int) -> None:
        self.send_response(answer.status)
        for name, value in _kept(answer):
            self.send_header(name, value)
        if answer.status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _refuse(self, refusal: Refusal) -> None:
        text = f"<Error><Code>{refusal.code}</Code><Message>planned</Message></Error>".encode()
        self.send_response(refusal.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _break_off(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            # Lingering for 0 s makes the kernel send RST in place of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _kept(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    return (pair for pair in answer.getheaders() if pair[0].lower() not in {*_HOP_BY_HOP, "content-length"})
