"""The server's process: uvicorn on one socket."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from oarlock.errors import NotNowError
from oarlock.web.patient import PatientProtocol

PORT = 8270
"""Where nobody names one; another free one where it is taken."""
MOST_HEAD = 32 * 1024
"""Bytes of a request's head that are held until it is whole: the cookies of a login have 14 KiB at most, a token 8."""
GRACE_SECONDS = 2
"""For answers on their way when the server ends; streams never end by themselves."""


def listening(host: str, port: int | None) -> socket.socket:
    """A socket on a port, or where None is named on PORT or any. Raises NotNowError where it is taken."""
    for wanted in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server(
                (host, wanted), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
            )
        except OSError as error:
            if port is None and wanted and error.errno == errno.EADDRINUSE:
                continue
            raise NotNowError(
                f"{host}:{wanted} cannot be listened at ({error.strerror}): name another --port"
            ) from error
    raise AssertionError("the last port is any")


def serve(app: ASGIApp, listener: socket.socket, *, started: Callable[[uvicorn.Server], None]) -> None:
    """Answer until SIGINT or SIGTERM, or until the server that `started` is given once it answers has `should_exit` set."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        http=PatientProtocol,
        h11_max_incomplete_event_size=MOST_HEAD,
        loop="asyncio",
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=30,
        limit_concurrency=1024,
    )
    _Server(config, started).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[uvicorn.Server], None]) -> None:
        super().__init__(config)
        self._when_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_started(self)
