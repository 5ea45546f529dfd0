"""HTTP of a client that gets to the point: a connection whose next request does not begin in time is ended.

uvicorn ends those that say nothing after an answer, and has no limit for those that never begin, or send a byte now and then.
Each is one of the connections that all clients share.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0
"""From a head's first byte, or from the connection, to the head's end; a browser connects ahead of what it will ask.

And from an answer to the end of a body that it did not wait for. To close at once would take the answer from who still sends.
"""


class PatientProtocol(H11Protocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, or no longer."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE or self._is_answered_early():
            self._wait()
        else:
            self._end_wait()

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
