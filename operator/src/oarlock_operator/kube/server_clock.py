"""The time by the API server's clock: what one operator wrote down, another one judges, on another machine.

Each answer carries the server's date, to the second. As long as this machine's clock agrees with it, it is used as it is, for
it is finer. Where it does not, it is corrected, so that no deadline is over for one operator that was not for the one before.

What is decided by a wrong time may be final, so one odd date moves nothing: several answers in a row must agree with each
other, and once the clock was right, for some seconds. This machine's clock is read once, and counted on from there: one that
is set, back or forth, while the process runs moves nothing either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import structlog

log = structlog.get_logger(__name__)

AGREE_SECONDS = 5.0
"""Dates are whole seconds, and an answer takes its time: so much is no difference between two clocks."""
ANSWERS = 3
"""So many in a row must agree before the clock is corrected. Before its first term an operator hears more than that."""
SURE_SECONDS = 10.0
"""For so long, too, once it was right: longer than what stood in the network while the machine slept."""


def since_boot() -> float:
    """Monotonic seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _steady() -> Callable[[], datetime]:
    begun, at = datetime.now(UTC), since_boot()
    return lambda: begun + timedelta(seconds=since_boot() - at)


class ServerClock:
    """This machine's clock, corrected by the API server's answers. `local` is to be steady."""

    def __init__(self, *, local: Callable[[], datetime] | None = None) -> None:
        self._local = local or _steady()
        self._ahead = timedelta()
        self._sure = False
        """Whether an answer has agreed with the time as it is told now."""
        self._odd: list[tuple[datetime, timedelta]] = []
        """The answers since the last that agreed with it: when each came, and how far ahead its date was."""

    def now(self) -> datetime:
        """The time in UTC."""
        return self._local() + self._ahead

    def heard(self, date: str | None, *, seconds: float) -> None:
        """An answer that took so long has this date. A slow one says nothing: nobody knows when it was written."""
        if date is None or seconds > AGREE_SECONDS:
            return
        try:
            server = parsedate_to_datetime(date).astimezone(UTC)
        except (ValueError, OverflowError):
            return
        here = self._local()
        ahead = server - here
        if _agree(ahead, self._ahead):
            self._sure = True
            self._odd.clear()
            return
        if self._odd and not _agree(ahead, self._odd[0][1]):
            self._odd.clear()
        self._odd.append((here, ahead))
        waited = (here - self._odd[0][0]).total_seconds()
        if len(self._odd) >= ANSWERS and (not self._sure or waited >= SURE_SECONDS):
            log.warning("this machine's clock differs from the API server's", seconds=round(-ahead.total_seconds()))
            self._ahead, self._sure = ahead, True
            self._odd.clear()


def _agree(one: timedelta, other: timedelta) -> bool:
    return abs((one - other).total_seconds()) <= AGREE_SECONDS
