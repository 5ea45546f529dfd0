"""The agent in a pod, as the API server's port-forward leads to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fake_api import FakeApi


@contextmanager
def agent(api: FakeApi, pod: str) -> Iterator[dict[str, bytes]]:
    """What it has at which path; it may be changed meanwhile."""
    paths: dict[str, bytes] = {}

    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = paths.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    api.forwards[f"/api/v1/namespaces/default/pods/{pod}/portforward"] = server.server_port
    yield paths
    server.shutdown()
    server.server_close()
