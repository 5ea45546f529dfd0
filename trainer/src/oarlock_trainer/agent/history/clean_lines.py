"""One stream of output as the lines that a log keeps: whole, stamped with their time, and without a secret.

Output comes in pieces of any length, so a secret may come in two: what may be the beginning of one waits for the next piece.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oarlock_api.contract.log_lines import stamped
from oarlock_trainer.agent.webhooks.redaction import without_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.contract.log_lines import LogStream

LONGEST_LINE = 16384
"""Bytes; a longer one is cut, so that a stream without a newline is kept as well."""


class CleanLines:
    """The state between two pieces of a stream."""

    def __init__(self, stream: LogStream, secrets: Sequence[str]) -> None:
        self._stream = stream
        # JSON has some characters of a secret in another form.
        every = {*secrets, *(json.dumps(secret)[1:-1] for secret in secrets)}
        self._secrets = sorted((secret.encode() for secret in every), key=len, reverse=True)
        self._texts = [secret.decode("latin-1") for secret in self._secrets]
        self._rest = b""

    def take(self, piece: bytes, *, time: str) -> bytes:
        """The lines that are whole now."""
        written = self._redacted(self._rest + piece)
        certain = len(written) - self._may_be_secret(written)
        end = written.rfind(b"\n", 0, certain) + 1
        if not end and len(written) > LONGEST_LINE:
            end = certain
        self._rest = written[end:]
        return self._stamped(written[:end], time) if end else b""

    def end(self, *, time: str) -> bytes:
        """What is left, as a line."""
        rest, self._rest = self._rest, b""
        return self._stamped(rest, time) if rest else b""

    def _stamped(self, lines: bytes, time: str) -> bytes:
        return stamped(lines if lines.endswith(b"\n") else lines + b"\n", stream=self._stream, time=time)

    def _redacted(self, written: bytes) -> bytes:
        if not any(secret in written for secret in self._secrets):
            return written
        return str(without_secrets(written.decode("latin-1"), self._texts)).encode("latin-1")

    def _may_be_secret(self, written: bytes) -> int:
        """Bytes at the end that are the beginning of a secret."""
        last, found = written[-1:], 0
        for secret in self._secrets:
            length = min(len(secret), len(written) + 1)
            # Few secrets have a newline, and few pieces end with anything else.
            while (length := secret.rfind(last, 0, length - 1) + 1) > 0:
                if written.endswith(secret[:length]):
                    found = max(found, length)
                    break
        return found
