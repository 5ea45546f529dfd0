"""Warnings that strangers can cause: at most one a minute, so that nobody can fill a node's disk."""

from __future__ import annotations

import logging
import math

_SECONDS = 60.0

log = logging.getLogger(__name__)


class SparseLog:
    """Logs the first warning of each minute, with the number of those before it that it held back.

    `quiet_until`: before that moment nothing is worth a line.
    """

    def __init__(self, *, quiet_until: float = -math.inf) -> None:
        self._quiet_until = quiet_until
        self._held_back = 0

    def warning(self, sentence: str, *, now: float) -> None:
        """Log or count. `now` is any clock's seconds."""
        if now < self._quiet_until:
            self._held_back += 1
            return
        log.warning("%s", sentence, extra={"heldBack": self._held_back})
        self._quiet_until, self._held_back = now + _SECONDS, 0
