"""A model hub on this machine: the few requests of huggingface_hub's protocol that reading and writing a model takes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LFS = (".safetensors", ".bin", ".model")


@dataclass
class TinyHub:
    """Repositories by name, each a dictionary of files. `asked` has each request's method and path, in their order."""

    address: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    token: str = ""
    """What every request must bring; empty: nothing is asked for."""
    gated: set[str] = field(default_factory=set)
    older: set[str] = field(default_factory=set)
    """Commits that were, and still answer, with the files of now."""
    damaged: dict[str, int] = field(default_factory=dict)
    """File -> how many more times it is sent with a wrong byte."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    """LFS objects that were sent, by their hash."""

    def add(self, repo: str, folder: Path) -> None:
        self.repos[repo] = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }

    def commit(self, repo: str) -> str:
        facts = sorted((name, hashlib.sha1(body).hexdigest()) for name, body in self.repos[repo].items())  # noqa: S324
        return hashlib.sha1(json.dumps(facts).encode()).hexdigest()  # noqa: S324

    def requests(self, method: str, part: str) -> list[str]:
        return [path for verb, path in self.asked if verb == method and part in path]


@contextmanager
def serving() -> Iterator[TinyHub]:
    """A hub as long as the block lives."""
    hub = TinyHub()

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: TinyHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._answer(b"")

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    do_PUT = do_POST  # noqa: N815

    def _answer(self, body: bytes) -> None:  # noqa: PLR0911 - one for each kind of request
        hub, path = self.served, self.path.partition("?")[0]
        hub.asked.append((self.command, path))
        if path.startswith("/lfs/"):
            hub.stored[path.removeprefix("/lfs/")] = body
            return self._send(200)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._send(401, {"error": "who are you"})
        if path == "/api/whoami-v2":
            return self._json({"name": "somebody", "type": "user"})
        if path == "/api/repos/create":
            wanted = json.loads(body)
            repo = f"{wanted.get('organization') or 'somebody'}/{wanted['name']}"
            hub.repos.setdefault(repo, {})
            return self._json({"url": f"{hub.address}/{repo}", "name": wanted["name"]})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|preupload|commit)/(\w+))?", path):
            repo, what, revision = found.groups()
            return self._of_repo(repo, what, revision, body)
        if found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return self._batch(json.loads(body))
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path):
            repo, _, name = found.groups()
            if repo in hub.repos and name in hub.repos[repo]:
                return self._file(repo, name)
        return self._send(404, {"error": "not here"})

    def _of_repo(self, repo: str, what: str | None, revision: str | None, body: bytes) -> None:  # noqa: PLR0911
        hub = self.served
        if repo not in hub.repos:
            return self._send(404, {"error": "no repo"}, {"X-Error-Code": "RepoNotFound"})
        if repo in hub.gated:
            return self._send(403, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        if revision not in (None, "main", hub.commit(repo), *hub.older):
            return self._send(404, {"error": "no revision"}, {"X-Error-Code": "RevisionNotFound"})
        if what == "tree":
            return self._json([{"type": "file", "path": name, **self._facts(repo, name)} for name in hub.repos[repo]])
        if what == "preupload":
            modes = [
                {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(_LFS) else "regular",
                 "shouldIgnore": False, "oid": self._facts(repo, one["path"]).get("oid")}
                for one in json.loads(body)["files"]
            ]  # fmt: skip
            return self._json({"files": modes})
        if what == "commit":
            self._commit(hub.repos[repo], body)
            at = hub.commit(repo)
            return self._json({"commitUrl": f"{hub.address}/{repo}/commit/{at}", "commitOid": at, "success": True})
        siblings = [
            {"rfilename": name, "size": facts["size"], "blobId": facts["oid"], "lfs": facts.get("lfs")}
            for name in hub.repos[repo]
            for facts in [self._facts(repo, name)]
        ]
        sha = revision if revision in hub.older else hub.commit(repo)
        return self._json({"id": repo, "modelId": repo, "sha": sha, "siblings": siblings, "tags": []})

    def _commit(self, held: dict[str, bytes], body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                held[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del held[value["path"]]
            elif line["key"] == "lfsFile":
                held[value["path"]] = self.served.stored[value["oid"]]

    def _batch(self, asked: dict[str, Any]) -> None:
        hub = self.served
        objects = [
            {"oid": one["oid"], "size": one["size"], "authenticated": True}
            | (
                {}
                if one["oid"] in hub.stored
                else {"actions": {"upload": {"href": f"{hub.address}/lfs/{one['oid']}", "header": {}}}}
            )
            for one in asked["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _facts(self, repo: str, name: str) -> dict[str, Any]:
        body = self.served.repos[repo].get(name)
        if body is None:
            return {}
        blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()  # noqa: S324 - git's
        facts: dict[str, Any] = {"size": len(body), "oid": blob}
        if name.endswith(_LFS):
            facts["lfs"] = {
                "oid": (sha := hashlib.sha256(body).hexdigest()),
                "sha256": sha,
                "size": len(body),
                "pointerSize": 130,
            }
        return facts

    def _file(self, repo: str, name: str) -> None:
        hub, body, facts = self.served, self.served.repos[repo][name], self._facts(repo, name)
        start = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        headers = {
            "ETag": f'"{facts["lfs"]["oid"] if "lfs" in facts else facts["oid"]}"',
            "X-Repo-Commit": hub.commit(repo),
            "Accept-Ranges": "bytes",
        }
        if self.command == "GET" and hub.damaged.get(name, 0):
            hub.damaged[name] -= 1
            body = body[:-1] + bytes([body[-1] ^ 1])
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._send(206 if start else 200, body[start:], headers)

    def _json(self, value: Any) -> None:
        self._send(200, value)

    def _send(self, status: int, content: Any = b"", headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
