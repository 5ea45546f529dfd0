"""A receiver of webhooks: an HTTP server on this machine that answers as it is told and keeps what it was sent."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.secrets import secret_variable
from oarlock_api.contract.sections import SecretKeyRef, Webhook
from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.webhooks.outbox import QueuedMessage
from oarlock_trainer.agent.webhooks.pace import RetryPolicy
from oarlock_trainer.agent.webhooks.receivers import Receiver, receiver_of

if TYPE_CHECKING:
    import ssl

    from oarlock_trainer.agent.webhooks.sender import Sender, Tally

QUICK = RetryPolicy(first_delay=0.01)
"""All the tries, and hardly a pause."""
URL_REF, TOKEN_REF, KEY_REF = (SecretKeyRef(name="hooks", key=key) for key in ("url", "token", "key"))


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class Answers:
    """What comes next: status and headers; 204 when nothing is left."""

    planned: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    open: threading.Event = field(default_factory=threading.Event)
    """Set: requests are answered. Clear: they wait."""
    drip: bool = False
    """An answer without end, a byte at a time."""


class Inbox:
    """The server. `received` is what came, in order."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.answers = Answers()
        self.answers.open.set()
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox.received.append(Received(self.path, dict(self.headers), body, time.monotonic()))
                inbox.answers.open.wait(patience.SECONDS)
                if inbox.answers.drip:
                    self._drip()
                    return
                status, headers = inbox.answers.planned.popleft() if inbox.answers.planned else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _drip(self) -> None:
                try:
                    for _ in range(6000):
                        self.wfile.write(b"x")
                        time.sleep(0.01)
                except OSError:
                    inbox.cut = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.cut = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if context else 'http'}://localhost:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, status: int, *, times: int = 1, **headers: str) -> None:
        """Plan the next answers. `Retry_After="1"` is a header."""
        for _ in range(times):
            self.answers.planned.append((status, {name.replace("_", "-"): value for name, value in headers.items()}))

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.received]

    def receiver(self, path: str = "/hook", environment: dict[str, str] | None = None, **fields: Any) -> Receiver:
        """This server as a job's receiver."""
        return receiver_of(Webhook(name="test", url=self.url + path, **fields), environment or {})

    def end(self) -> None:
        self.answers.open.set()
        self._server.shutdown()
        self._server.server_close()


def variable(reference: SecretKeyRef) -> str:
    """The pod's variable with the value of a Secret."""
    return secret_variable(reference.name, reference.key)


def message(text: str = "x", level: WebhookLevel = WebhookLevel.INFO, kind: str = "training.status") -> QueuedMessage:
    return QueuedMessage(type=kind, level=level, body=text.encode())


def finished(sender: Sender, within: float = patience.SECONDS) -> Tally:
    """Close and wait; `within` is a bound, not a pause."""
    sender.close(time.monotonic() + within)
    sender.join()
    return sender.tally


def delivered(sender: Sender, count: int) -> Tally:
    return eventually(lambda: (tally := sender.tally).sent + tally.lost >= count and tally, f"{count} messages to end")
