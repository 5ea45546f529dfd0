"""What goes wrong between an operator and its API server, on purpose: a proxy before a real one.

    with ApiProxy(kubeconfig, tmp_path / "proxied") as proxy:
        with operator(proxy.kubeconfig, ...):
            proxy.refuse()
            ...
            proxy.heal()

Plain HTTP on a loopback address, in a thread of its own; the token goes on as it came.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
import yaml
from aiohttp import web

from oarlock_local import patience

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}
_OVER = json.dumps(
    {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError", "message": "planned"}}
)


class Asked(NamedTuple):
    """One request that came."""

    method: str
    path: str


class Held:
    """A request that was done, and whose answer is kept back until `release`."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._go_on = threading.Event()

    def release(self) -> None:
        """Let the answer go."""
        self._go_on.set()

    async def keep(self) -> None:
        """Wait for that."""
        self.done.set()
        await asyncio.to_thread(self._go_on.wait)


class ApiProxy:
    """A proxy before the API server of a kubeconfig; `kubeconfig` is the one that leads through it."""

    def __init__(self, kubeconfig: Path, through: Path) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text())
        cluster = self._config["clusters"][0]["cluster"]
        self._upstream = cluster["server"]
        data = cluster.get("certificate-authority-data")
        authority = base64.b64decode(data).decode() if data else Path(cluster["certificate-authority"]).read_text()
        self._tls = ssl.create_default_context(cadata=authority)
        self._holds: list[tuple[str, str, Held]] = []
        self._refusing = self._hanging = self._bad_watches = False
        self._pause = 0.0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.asked: list[Asked] = []
        self.kubeconfig = through

    def refuse(self) -> None:
        """From now on every request is answered with 503, and every stream is cut."""
        self._set(_refusing=True)

    def hang(self) -> None:
        """From now on nothing is answered, and streams are silent."""
        self._set(_hanging=True)

    def slow_down(self, seconds: float) -> None:
        """Every request takes so much longer."""
        self._set(_pause=seconds)

    def break_watches(self) -> None:
        """Every stream ends with an error of the server's own; so does every new one."""
        self._set(_bad_watches=True)

    def heal(self) -> None:
        """All is well again. What hung is cut off."""
        self._set(_refusing=False, _hanging=False, _bad_watches=False, _pause=0.0)

    def hold(self, method: str, path: str) -> Held:
        """Keep back the answer of the next such request."""
        held = Held()
        self._holds.append((method, path, held))
        return held

    def writes(self) -> list[Asked]:
        """What came to be written, but for what is free of the fence: see fence.py."""
        free = ("/leases", "/events", "/secrets", "/selfsubjectaccessreviews")
        return [each for each in self.asked if each.method != "GET" and not any(part in each.path for part in free)]

    def watched(self, kind: str) -> int:
        """How often a stream of that kind was asked for."""
        return sum(f"/{kind}?" in each.path and "watch=" in each.path for each in self.asked)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, _, held in self._holds:
            held.release()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patience.SECONDS)

    def _set(self, **changes: bool | float) -> None:
        def change() -> None:
            for name, value in changes.items():
                setattr(self, name, value)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

        self._loop.call_soon_threadsafe(change)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._changed = asyncio.Event(), asyncio.Event()
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
        self.kubeconfig.write_text(yaml.safe_dump(self._config))
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        ) as self._session:
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.method, request.path_qs))
        if self._hanging:
            await self._changed.wait()
            raise ConnectionResetError
        if self._refusing:
            return web.json_response({"reason": "ServiceUnavailable", "message": "planned", "code": 503}, status=503)
        await asyncio.sleep(self._pause)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        async with self._session.request(
            request.method, f"{self._upstream}{request.path_qs}", headers=headers, data=await request.read() or None
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            if "watch" in request.query and answer.status < 400:
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                with contextlib.suppress(ConnectionError):
                    await self._stream(answer, response)
                return response
            body = await answer.read()
            for held in self._taken(request):
                await held.keep()
            return web.Response(status=answer.status, headers=kept, body=body)

    async def _stream(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        reading = asyncio.create_task(answer.content.readany())
        changed = asyncio.create_task(self._changed.wait())
        try:
            while True:
                if self._refusing:
                    return
                if self._bad_watches:
                    await response.write(_OVER.encode() + b"\n")
                    return
                await asyncio.wait([reading, changed], return_when=asyncio.FIRST_COMPLETED)
                if changed.done():
                    changed = asyncio.create_task(self._changed.wait())
                    continue
                data = reading.result()
                if not data:
                    return
                while self._hanging:
                    await self._changed.wait()
                await response.write(data)
                reading = asyncio.create_task(answer.content.readany())
        finally:
            reading.cancel()
            changed.cancel()

    def _taken(self, request: web.Request) -> Iterator[Held]:
        for each in self._holds:
            method, path, held = each
            if method == request.method and path in request.path and not held.done.is_set():
                yield held
