"""As much of an MLflow server as a tracker needs: experiments and runs in memory, behind its REST API 2.0 and a token."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN = "let-me-in"  # noqa: S105 - of a server that lives for a test


class MlflowServer:
    """Runs on a free port of this machine while it is entered."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()})

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

            def _answer(self, body: dict[str, Any]) -> None:
                status, answer = 200, server.answer(urlsplit(self.path).path.removeprefix("/api/2.0/mlflow/"), body)
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, answer = 401, {"error_code": "UNAUTHENTICATED", "message": "no token"}
                elif answer is None:
                    status, answer = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such thing"}
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """A test's output is no place for it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, call: str, body: dict[str, Any]) -> dict[str, Any] | None:
        answers: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "experiments/get-by-name": self._experiment,
            "experiments/create": self._create_experiment,
            "runs/search": self._search,
            "runs/create": self._create,
            "runs/get": lambda one: {"run": self._run(one["run_id"])},
            "runs/log-batch": self._log,
            "runs/update": self._update,
        }
        return answers[call](body) if call in answers else None

    def _experiment(self, body: dict[str, Any]) -> dict[str, Any] | None:
        name = body["experiment_name"]
        if name not in self.experiments:
            return None
        return {"experiment": {"experiment_id": self.experiments[name], "name": name, "lifecycle_stage": "active"}}

    def _create_experiment(self, body: dict[str, Any]) -> dict[str, Any]:
        found = self.experiments[body["name"]] = str(len(self.experiments) + 1)
        return {"experiment_id": found}

    def _search(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = re.fullmatch(r"tags\.`([^`]+)` = '([^']+)'", body["filter"])
        assert asked, body
        tag = {"key": asked[1], "value": asked[2]}
        return {"runs": [run for run in self.runs if tag in run["data"]["tags"]]}

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        info = {"run_id": f"run-{len(self.runs)}", "experiment_id": body["experiment_id"], "status": "RUNNING"}
        info |= {"run_uuid": info["run_id"], "run_name": body["run_name"], "lifecycle_stage": "active"}
        self.runs.append({"info": info, "data": {"metrics": [], "params": [], "tags": body["tags"]}})
        return {"run": self.runs[-1]}

    def _log(self, body: dict[str, Any]) -> dict[str, Any]:
        data = self._run(body["run_id"])["data"]
        data["metrics"] += body.get("metrics") or []
        data["params"] += body.get("params") or []
        return {}

    def _update(self, body: dict[str, Any]) -> dict[str, Any]:
        info = self._run(body["run_id"])["info"]
        info["status"] = body.get("status", info["status"])
        return {"run_info": info}

    def _run(self, name: str) -> dict[str, Any]:
        return next(run for run in self.runs if run["info"]["run_id"] == name)
