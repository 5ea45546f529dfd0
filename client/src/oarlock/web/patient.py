"""HTTP of a client that gets to the point: a connection whose next request does not begin in time is ended.

uvicorn ends those that say nothing after an answer, and has no limit for those that never begin, or send a byte now and then.
Each is one of the connections that all clients share.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0
"""From a head's first byte, or from the connection, to the head's end; a browser connects ahead of what it will ask.

And from an answer to the end of a body that it did not wait for. To close at once would take the answer from who still sends.
"""
CLOSE_SECONDS = 5.0
"""From the connection's close for what the client has still to take; a transport waits for that for ever."""


class _Closing:
    """A transport that does not wait for long once it was closed."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        self._transport.close()
        if not self._closed:
            self._loop.call_later(CLOSE_SECONDS, self._transport.abort)
        self._closed = True


class PatientProtocol(H11Protocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(cast(asyncio.Transport, _Closing(transport, self.loop)))
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, or no longer."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE or self._is_answered_early():
            self._wait()
        else:
            self._end_wait()

    def eof_received(self) -> None:
        """Close it, as asyncio would: what the client does not take by then, it does not take at all."""
        self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the rest of a body that nobody reads."""
        super().on_response_complete()
        if self._is_answered_early():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._end_wait()
        super().connection_lost(exc)

    def _is_answered_early(self) -> bool:
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _wait(self) -> None:
        self._late = self._late or self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self._late:
            self._late.cancel()
        self._late = None
