"""The time by the API server's clock: what one operator wrote down, another one judges, on another machine.

Each answer carries the server's date, to the second. As long as this machine's clock agrees with it, it is used as it is, for
it is finer. Where it does not, as on a node whose clock is wrong or is set in this moment, it is corrected, so that no
deadline is over for one operator that was not for the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import structlog

log = structlog.get_logger(__name__)

AGREE_SECONDS = 5.0
"""Dates are whole seconds, and an answer takes its time: so much is no difference between two clocks."""


def _local() -> datetime:
    return datetime.now(UTC)


class ServerClock:
    """This machine's clock, corrected by the API server's answers."""

    def __init__(self, *, local: Callable[[], datetime] = _local) -> None:
        self._local = local
        self._ahead = timedelta()

    def now(self) -> datetime:
        """The time in UTC."""
        return self._local() + self._ahead

    def heard(self, date: str | None, *, seconds: float) -> None:
        """An answer that took so long has this date. A slow one says nothing: nobody knows when it was written."""
        if date is None or seconds > AGREE_SECONDS:
            return
        try:
            server = parsedate_to_datetime(date).astimezone(UTC)
        except ValueError:
            return
        ahead = server - self._local()
        if abs((ahead - self._ahead).total_seconds()) > AGREE_SECONDS:
            log.warning("this machine's clock differs from the API server's", seconds=round(-ahead.total_seconds()))
            self._ahead = ahead
