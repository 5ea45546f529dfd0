"""An API server as small as the client needs it: objects in a dict, merge patches, logs, watches, refusals.

Every request is kept.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_port_forward import forward

from oarlock_local import patience

JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/{}/trainingjobs"


class FakeApi:
    """What it holds may be changed while it runs. `refusals`: path -> (status, message) for whoever asks for it.

    `before` sees each request first: (method, path, body) -> (status, message) that is answered instead, or None.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.objects["/api/v1/namespaces/default"] = {"metadata": {"name": "default"}}
        self.logs: dict[str, bytes] = {}
        self.forwards: dict[str, int] = {}
        """Path of a pod's portforward -> the port of this machine that it leads to."""
        self.refusals: dict[str, tuple[int, str]] = {}
        self.denied: set[str] = set()
        """What a SelfSubjectAccessReview denies, as in `get pods/log`, though the namespace may be read."""
        self.before: Callable[[str, str, Any], tuple[int, str] | None] = lambda *_: None
        self.asked: list[tuple[str, str, Any]] = []
        self.tokens: dict[str, set[str] | None] = {"t0ken": None}
        """Token -> the namespaces that it may read; None: all."""
        self.users: dict[str, str] = {}
        self.token = threading.local()
        """Its value is that of the request which this thread answers."""
        self.address = ""
        self.changes: list[tuple[str, str, dict[str, Any]]] = []
        self._changed = threading.Condition()
        self.watches = 0

    def change(self, path: str, body: dict[str, Any] | None) -> None:
        """Put an object there, or take it away, and have watches tell it."""
        with self._changed:
            there = path in self.objects
            kind = "DELETED" if body is None else "MODIFIED" if there else "ADDED"
            told = json.loads(json.dumps(body if body is not None else self.objects.pop(path)))
            told["metadata"]["resourceVersion"] = str(len(self.changes) + 1)
            if body is not None:
                self.objects[path] = body
            self.changes.append((path, kind, told))
            self._changed.notify_all()

    def watched(self) -> None:
        """Return once there is a watch."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.watches > 0, patience.SECONDS)

    def end_watches(self) -> None:
        """End those that are there, once there is one."""
        self.watched()
        with self._changed:
            self.changes.append(("", "", {}))
            self._changed.notify_all()

    def watch(self, path: str, query: dict[str, list[str]]) -> Iterator[bytes]:
        """Lines of a watch of a list, until it is told to end, or its time is over."""
        collection = path.rpartition("/")[2]
        within = path if "/namespaces/" in path else path.rpartition("/")[0]
        place = int(query["resourceVersion"][0])
        deadline = time.monotonic() + int(query["timeoutSeconds"][0])
        with self._changed:
            began = len(self.changes)
            self.watches += 1
            self._changed.notify_all()
        try:
            while True:
                with self._changed:
                    left = deadline - time.monotonic()
                    if not self._changed.wait_for(lambda place=place: len(self.changes) > place, max(left, 0)):
                        return
                    news, place = list(enumerate(self.changes))[place:], len(self.changes)
                for number, (at, kind, told) in news:
                    if not kind:
                        if number < began:
                            continue
                        return
                    if at.split("/")[-2] == collection and at.startswith(within):
                        yield json.dumps({"type": kind, "object": told}).encode() + b"\n"
        finally:
            with self._changed:
                self.watches -= 1

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
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": labels,
                "ownerReferences": [{"kind": "TrainingJob", "name": job, "uid": f"uid-{job}", "controller": True}],
            },
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

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: C901, PLR0911 - a table of answers
        where = urlsplit(path)
        self.asked.append((method, path, body))
        if where.path.endswith("/selfsubjectreviews") and where.path not in self.objects:
            return 201, {"status": {"userInfo": {"username": self.users.get(self.token.value, "somebody")}}}
        if where.path.endswith("/selfsubjectaccessreviews"):
            wanted = body["spec"]["resourceAttributes"]
            namespaces = self.tokens[self.token.value]
            denied = f"{wanted['verb']} {wanted['resource']}/{wanted['subresource']}" in self.denied
            there = namespaces is None or wanted["namespace"] in namespaces
            return 201, {"status": {"allowed": there and not denied}}
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

    def may(self, token: str, path: str) -> bool:
        namespaces = self.tokens[token]
        return namespaces is None or any(f"/namespaces/{one}/" in path for one in namespaces) or "/selfsubject" in path

    def _list(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        collection = path.rpartition("/")[2]
        if collection not in {"trainingjobs", "pods", "events", "nodes", "namespaces", "configmaps"}:
            return 404, {"message": f'trainingjobs.oarlock.dev "{collection}" not found'}
        within = path if "/namespaces/" in path else ""
        selectors = [one for each in query.get("labelSelector", []) for one in re.split(r",(?![^(]*\))", each)]
        labels = dict(one.split("=") for one in selectors if "=" in one)
        sets = dict(one.removesuffix(")").split(" in (") for one in selectors if " in (" in one)
        found = [
            each
            for name, each in self.objects.items()
            if name.split("/")[-2] == collection
            and name.startswith(within)
            and labels.items() <= (own := each["metadata"].get("labels") or {}).items()
            and all(own.get(name) in values.split(",") for name, values in sets.items())
        ]
        return 200, {"items": found, "metadata": {"resourceVersion": str(len(self.changes))}}


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
            where = urlsplit(self.path).path
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if token not in api.tokens:
                status, answer = 401, {"message": "Unauthorized"}
            elif not api.may(token, self.path):
                status, answer = 403, {"message": f"{token} may not read {self.path.partition('?')[0]}"}
            elif (
                self.headers.get("Upgrade") == "websocket"
                and (to := api.forwards.get(where))
                and where not in api.refusals
            ):
                api.asked.append((self.command, self.path, None))
                forward(self, to)
                return
            else:
                api.token.value = token
                status, answer = api.answer(self.command, self.path, body)
                query = parse_qs(urlsplit(self.path).query)
                if status == 200 and "watch" in query:
                    self._stream(api.watch(urlsplit(self.path).path, query))
                    return
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def _stream(self, lines: Iterator[bytes]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for line in lines:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - as http.server calls them

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield api
    server.shutdown()
    server.server_close()
