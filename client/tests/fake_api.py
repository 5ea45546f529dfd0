"""An API server as small as the client needs it: objects in a dict, merge patches, logs, refusals. Every request is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/{}/trainingjobs"


class FakeApi:
    """What it holds may be changed while it runs. `refusals`: path -> (status, message) for whoever asks for it.

    `before` sees each request first: (method, path, body) -> (status, message) that is answered instead, or None.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.objects["/api/v1/namespaces/default"] = {"metadata": {"name": "default"}}
        self.logs: dict[str, bytes] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.before: Callable[[str, str, Any], tuple[int, str] | None] = lambda *_: None
        self.asked: list[tuple[str, str, Any]] = []
        self.address = ""

    def add_job(self, name: str, namespace: str = "default", **parts: Any) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        job = {
            "apiVersion": "oarlock.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": metadata,
            "spec": {"nodes": 2, "gpusPerNode": 8},
            **parts,
        }
        self.objects[f"{JOBS.format(namespace)}/{name}"] = job
        return job

    def add_pod(self, job: str, attempt: int, rank: int, log: str | None, state: str = "running") -> dict[str, Any]:
        name = f"{job}-{attempt}-{rank}"
        labels = {
            "oarlock.dev/job": job,
            "oarlock.dev/job-uid": f"uid-{job}",
            "oarlock.dev/attempt": str(attempt),
            "oarlock.dev/rank": str(rank),
        }
        pod = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels},
            "status": {"phase": "Running", "containerStatuses": [{"name": "trainer", "state": {state: {}}}]},
        }
        self.objects[f"/api/v1/namespaces/default/pods/{name}"] = pod
        if log is not None:
            self.logs[f"/api/v1/namespaces/default/pods/{name}/log"] = log.encode()
        return pod

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "config"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "contexts": [
                        {"name": "fake", "context": {"cluster": "fake", "user": "me"}},
                        {"name": "other", "context": {"cluster": "fake", "user": "me", "namespace": "team"}},
                    ],
                    "clusters": [{"name": "fake", "cluster": {"server": self.address}}],
                    "users": [{"name": "me", "user": {"token": "t0ken"}}],
                }
            )
        )
        return path

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: PLR0911 - a table of answers
        where = urlsplit(path)
        self.asked.append((method, path, body))
        if refusal := self.before(method, path, body) or self.refusals.get(where.path):
            status, message = refusal
            return status, {"kind": "Status", "message": message}
        if where.path in self.logs:
            return 200, self.logs[where.path]
        if method == "GET" and where.path not in self.objects:
            return self._list(where.path, parse_qs(where.query))
        if method == "PATCH" and "fieldManager" in where.query:
            if "dryRun" not in where.query:
                self.objects[where.path] = body
            return 200, body
        if where.path not in self.objects:
            return 404, {"message": f"{where.path.rpartition('/')[2]} not found"}
        if method == "PATCH":
            merge(self.objects[where.path], body)
        if method == "DELETE":
            found = self.objects[where.path]["metadata"]
            if any(found.get(name) != value for name, value in ((body or {}).get("preconditions") or {}).items()):
                return 409, {"message": "the object has changed"}
            return 200, self.objects.pop(where.path)
        return 200, self.objects[where.path]

    def _list(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        collection = path.rpartition("/")[2]
        if collection not in {"trainingjobs", "pods", "events", "nodes", "namespaces"}:
            return 404, {"message": f'trainingjobs.oarlock.dev "{collection}" not found'}
        within = path if "/namespaces/" in path else ""
        labels = dict(one.split("=") for each in query.get("labelSelector", []) for one in each.split(","))
        found = [
            each
            for name, each in self.objects.items()
            if name.split("/")[-2] == collection
            and name.startswith(within)
            and labels.items() <= (each["metadata"].get("labels") or {}).items()
        ]
        return 200, {"items": found, "metadata": {}}


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


@contextmanager
def running() -> Iterator[FakeApi]:
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            known = self.headers.get("Authorization") == "Bearer t0ken"
            status, answer = api.answer(self.command, self.path, body) if known else (401, {"message": "Unauthorized"})
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_PATCH = do_DELETE = _serve  # noqa: N815 - as http.server calls them

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield api
    server.shutdown()
    server.server_close()
