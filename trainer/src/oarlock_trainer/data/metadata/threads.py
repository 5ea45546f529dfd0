"""Many small reads at a time: what takes its time is the storage, not the processor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

_TOGETHER = 32
"""Items that a thread takes at once: handing over costs about as much as one header."""


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], *, threads: int, on: Callable[[int], None]
) -> list[Result]:
    """The results in the order of the items; `on` is told of items that are done, and may raise to stop."""
    results: list[Result] = []
    shares = [items[start : start + _TOGETHER] for start in range(0, len(items), _TOGETHER)]
    pool = ThreadPoolExecutor(threads, thread_name_prefix="scan")
    try:
        for some in pool.map(lambda share: [work(item) for item in share], shares):
            results += some
            on(len(some))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return results
