"""One stream of output as the lines that a log keeps: whole, stamped with their time, and without a secret.

Output comes in pieces of any length, so a secret may come in two: what may be the beginning of one waits for the next piece.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from oarlock_api.contract.log_lines import stamped
from oarlock_trainer.agent.webhooks.redaction import SHORTEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.contract.log_lines import LogStream

LONGEST_LINE = 16384
"""Bytes; a longer one is cut, so that a stream without a newline is kept as well."""

_Span = tuple[int, int]
"""Where a secret begins, and where it has ended."""


class CleanLines:
    """The state between two pieces of a stream. The end may come while another thread still has a piece."""

    def __init__(self, stream: LogStream, secrets: Sequence[str]) -> None:
        self._stream = stream
        # JSON has some characters of a secret in another form.
        every = {*secrets, *(json.dumps(secret)[1:-1] for secret in secrets)}
        self._secrets = [secret.encode(errors="surrogateescape") for secret in every]
        self._lock = threading.Lock()
        self._rest = b""
        self._ended = False

    def take(self, piece: bytes, *, time: str) -> bytes:
        """The lines that are whole now; after the end nothing more, as what was held back is gone."""
        with self._lock:
            if self._ended:
                return b""
            written = self._rest + piece
            secrets = self._secrets_in(written)
            end = self._cut(written, secrets)
            self._rest = written[end:]
        return self._stamped(_struck(written[:end], secrets), time) if end else b""

    def end(self, *, time: str) -> bytes:
        """What is left, as a line, without what may well be the beginning of a secret."""
        with self._lock:
            rest, self._rest, self._ended = self._rest, b"", True
        secrets = self._secrets_in(rest)
        if (begun := self._may_be_secret(rest)) >= SHORTEST:
            secrets = _joined([*secrets, (len(rest) - begun, len(rest))])
        return self._stamped(_struck(rest, secrets), time) if rest else b""

    def _stamped(self, lines: bytes, time: str) -> bytes:
        return stamped(lines if lines.endswith(b"\n") else lines + b"\n", stream=self._stream, time=time)

    def _cut(self, written: bytes, secrets: Sequence[_Span]) -> int:
        """The end of what is certain: of the last whole line, or of all where a line is too long. Never within a secret."""
        certain = _outside(secrets, len(written) - self._may_be_secret(written))
        end = certain
        while end and written[end - 1 : end] != b"\n":
            end = _outside(secrets, written.rfind(b"\n", 0, end) + 1)
        return certain if not end and len(written) > LONGEST_LINE else end

    def _secrets_in(self, written: bytes) -> list[_Span]:
        found: list[_Span] = []
        for secret in self._secrets:
            at = written.find(secret)
            while at >= 0:
                found.append((at, at + len(secret)))
                at = written.find(secret, at + len(secret))
        return _joined(found)

    def _may_be_secret(self, written: bytes) -> int:
        """Bytes at the end that are the beginning of a secret."""
        last, found = written[-1:], 0
        for secret in self._secrets if written else ():
            length = min(len(secret), len(written) + 1)
            # Few secrets have a newline, and few pieces end with anything else.
            while (length := secret.rfind(last, 0, length - 1) + 1) > 0:
                if written.endswith(secret[:length]):
                    found = max(found, length)
                    break
        return found


def _joined(spans: Sequence[_Span]) -> list[_Span]:
    """In their order; those that overlap as one."""
    joined: list[_Span] = []
    for start, stop in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _outside(spans: Sequence[_Span], place: int) -> int:
    """The place itself, or the beginning of the span that it is within."""
    return next((start for start, stop in spans if start < place < stop), place)


def _struck(written: bytes, spans: Sequence[_Span]) -> bytes:
    parts, at = [], 0
    for start, stop in spans:
        if stop <= len(written):
            parts += [written[at:start], b"***"]
            at = stop
    return b"".join([*parts, written[at:]])
