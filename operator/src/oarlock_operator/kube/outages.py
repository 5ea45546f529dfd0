"""How long to wait for an API server that is away: ever longer, but so that it is noticed within seconds when it is back.

Where a Lease is held, an outage of more than a few seconds costs it, and then this process asks for nothing but the Lease
(lead.py): the waiting of a thousand jobs is one request every two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from oarlock_operator import metrics

log = structlog.get_logger(__name__)

FIRST_DELAY, LONGEST_DELAY = 0.5, 4.0


def longer(delay: float) -> float:
    """The delay after this one."""
    return min(2 * delay, LONGEST_DELAY)


async def supervised(part: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a part of the process until cancelled: it is not to end, and where it does, it begins anew."""
    delay = FIRST_DELAY
    while True:
        started = asyncio.get_running_loop().time()
        try:
            await run()
            log.warning("a part of the process has ended", part=part, again_seconds=delay)
        except Exception:
            log.exception("a part of the process has failed", part=part, again_seconds=delay)
        metrics.PARTS_RESTARTED.labels(part=part).inc()
        delay = FIRST_DELAY if asyncio.get_running_loop().time() - started > 60 else delay
        await asyncio.sleep(delay)
        delay = longer(delay)
