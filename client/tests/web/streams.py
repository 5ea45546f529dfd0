"""A page served by uvicorn, and its streams as a browser reads them: Starlette's TestClient waits for an answer's end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Any, Self

import urllib3
from starlette.types import ASGIApp

from oarlock.web.serve import listening, serve
from oarlock_local import patience


@dataclass(frozen=True)
class Event:
    kind: str
    data: Any
    id: str = ""


class Stream:
    """Server-sent events of an address."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        timeout = urllib3.Timeout(patience.SECONDS)
        self._response = urllib3.request(
            "GET", address, headers=headers, preload_content=False, timeout=timeout, retries=False
        )
        self.status = self._response.status
        self._lines = self._read()

    def next(self) -> Event:
        """The next event; heartbeats are none."""
        told: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(": ")
                told[name] = value
            elif "data" in told:
                return Event(told["event"], json.loads(told["data"]), told.get("id", ""))
            else:
                told = {}
        raise AssertionError("the stream has ended")

    def _read(self) -> Iterator[str]:
        rest = b""
        while chunk := self._response.read1():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The address at which it answers."""
    listener = listening("127.0.0.1", 0)
    servers: Queue[Any] = Queue()
    thread = threading.Thread(target=serve, args=(app, listener), kwargs={"started": servers.put}, daemon=True)
    thread.start()
    server = servers.get(timeout=patience.SECONDS)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(patience.SECONDS)
