"""Hiccups of an API server: while something is watched or waited for, they are waited out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from oarlock.errors import NoClusterError, OarlockError, RefusedError

PATIENCE_SECONDS = 300.0
"""Of waiting between requests of which none is answered: longer than an API server takes to restart or to be upgraded."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
Answer = TypeVar("Answer")


def patient(
    ask: Callable[[], Answer], *, sleep: Callable[[float], None] = time.sleep, deadline: float | None = None
) -> Answer:
    """The answer. What may pass is asked again, with longer and longer pauses, and the logger `oarlock` says so.

    `deadline` is one of time.monotonic. Raises the last error when the patience or the time is over, and every other at once.
    """
    pause, slept = FIRST_PAUSE, 0.0
    while True:
        try:
            return ask()
        except OarlockError as error:
            left = LONGEST_PAUSE if deadline is None else deadline - time.monotonic()
            if not is_hiccup(error) or slept >= PATIENCE_SECONDS or left <= 0:
                raise
            import logging  # noqa: PLC0415 - most commands never need it

            logging.getLogger("oarlock").warning("%s; asked again in %.0f s", error, pause)
            sleep(min(pause, left))
        slept += pause
        pause = min(2 * pause, LONGEST_PAUSE)


def is_hiccup(error: OarlockError) -> bool:
    """Whether the same request may be answered a little later."""
    if isinstance(error, RefusedError):
        return error.status == 429 or error.status >= 500
    return isinstance(error, NoClusterError)
