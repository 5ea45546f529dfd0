"""A large answer, sent piece by piece: its bytes count until the last one has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oarlock.web.budget import Share

PIECE = 64 * 1024
"""Bytes. What is handed over at once stands in memory again, until the browser has taken it."""
SEND_SECONDS = 60.0
"""A browser that takes longer, as one that takes nothing, gets no more: others wait for the room."""


class Sent(Response):
    """`content`, and the share that it takes."""

    def __init__(self, content: bytes, share: Share, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._content, self._share = content, share

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Send it; where that takes too long, the server ends the connection, for the answer is not whole."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SEND_SECONDS):
                    await self._send(send)
        finally:
            self._share.release()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for at in range(0, len(self._content), PIECE):
            await send({"type": "http.response.body", "body": self._content[at : at + PIECE], "more_body": True})
        await send({"type": "http.response.body", "body": b""})
